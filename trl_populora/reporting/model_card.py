"""The model card of a population: the README.md that stands beside its adapters, on disk and on the Hub."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from ..diagnostics import RoundSummary
from ..run_files.files import write_file
from ..run_files.layout import CARD_FILE, HISTORY_FILE
from .history import read_history
from .tables import NOTHING, fill_ins, percent, signed, strongest


logger = logging.getLogger(__name__)

PACKAGES = ("torch", "trl", "transformers", "peft", "accelerate")
PAPER = "2605.16727"
TITLE = "PopuLoRA: Co-Evolving LLM Populations for Reasoning Self-Play"
PAID_TASKS = {
    "adversarial": "that their matched student fails",
    "learnability": "that their matched student solves seldom, but not never",
    "frontier": "that their matched student solves half of the time",
    "solvable": "that their matched student fails and somebody of the population solves",
}
"""`teacher_reward` -> which valid tasks it pays for most, in words."""


def versions() -> dict[str, str]:
    """Installed versions of what a result depends on."""
    from .. import __version__  # not from the metadata: a checkout need not be installed

    return {"trl-populora": __version__} | {name: metadata.version(name) for name in PACKAGES}


def model_card(
    table: Mapping,
    *,
    base_model: str,
    repo_id: str = "<this repository>",
    history: Sequence[RoundSummary] = (),
    settings: Mapping[str, object] | None = None,
    versions: Mapping[str, str] | None = None,
) -> str:
    """Text of the card.

    Args:
        table (`Mapping`): Contents of the folder's `population.json`.
        base_model (`str`): Hub id or path of the frozen base.
        repo_id (`str`, *optional*): Where the card will stand; used in its example.
        history (`Sequence[RoundSummary]`, *optional*): Rounds of the run, for results.
        settings (`Mapping`, *optional*): Settings worth telling, by name; two of them word the first lines.
        versions (`Mapping`, *optional*): Package -> version.
    """
    members = table["members"]
    sections = [_header(base_model), _introduction(table, base_model, settings or {})]
    sections.append(_usage(repo_id, base_model, members, history))
    if history:
        sections.append(_results(history))
    sections.append(_members(members))
    if settings:
        rows = [(f"`{name}`", _code(value)) for name, value in _flat(settings)]
        sections.append(_table("Settings", ("setting", "value"), rows))
    if versions:
        sections.append("## Versions\n\n" + "\n".join(f"- {name} {version}" for name, version in versions.items()))
    sections.append(_citation())
    return "\n\n".join(sections) + "\n"


def write_card(folder: str, table: Mapping, **about: Any) -> None:
    """Write a run's card, with the results so far; `about` as in [`model_card`]. Warns if it cannot."""
    history = read_history(folder) if os.path.isfile(os.path.join(folder, HISTORY_FILE)) else []
    text = model_card(table, history=history, versions=versions(), **about)
    try:
        write_file(os.path.join(folder, CARD_FILE), text)
    except OSError as error:
        logger.warning(f"The model card in {folder} was not written: {error}.")


def _header(base_model: str) -> str:
    # A local path is no Hub id, and the Hub refuses a card that names it as one.
    base = [] if os.path.sep in base_model.strip("/") and os.path.exists(base_model) else [f"base_model: {base_model}"]
    tags = [f"- {tag}" for tag in ("trl", "grpo", "populora", "self-play", "lora", "population-based-training")]
    lines = ["---", *base, "library_name: peft", "pipeline_tag: text-generation", "tags:", *tags, "---"]
    return "\n".join(lines)


def _introduction(table: Mapping, base_model: str, settings: Mapping) -> str:
    if table["shared_member"]:
        who = "One LoRA adapter that both proposes and solves tasks"
    else:
        who = f"{_plural(table['num_teachers'], 'teacher')} and {_plural(table['num_students'], 'student')}"
        who += ", each a LoRA adapter"
    reward, types = settings.get("teacher_reward"), settings.get("task_types")
    kinds = f" ({', '.join(f'`{name}`' for name in types)})" if types else ""
    wanted = f" {PAID_TASKS[reward]}" if reward in PAID_TASKS else ""
    return (
        f"# A PopuLoRA population\n\n{who}, on the frozen base `{base_model}`. Teachers were trained to propose valid "
        f"tasks{kinds}{wanted}, students to solve them; programs and parsers judge, no model does. "
        f"Method: [{TITLE}](https://huggingface.co/papers/{PAPER})."
    )


def _usage(repo_id: str, base_model: str, members: Sequence[Mapping], history: Sequence[RoundSummary]) -> str:
    best = strongest(history[-1], "student") if history else None
    name = members[-1]["id"] if best is None else best.name
    return f"""## Use

Every folder is an ordinary PEFT adapter.

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = "{base_model}"
tokenizer = AutoTokenizer.from_pretrained(base)
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), "{repo_id}", subfolder="{name}")
```"""


def _results(history: Sequence[RoundSummary]) -> str:
    last, rows = history[-1], []
    for member in last.members:
        rating, shares = f"{member.mu:.1f}, {member.sigma:.1f}", map(percent, (member.validity, member.solve_rate))
        rows.append((member.name, rating, *shares, fill_ins(member), signed(member.reward)))
    columns = ("member", "rating (mu, sigma)", "valid", "solved", "fill-ins (solved)", "reward")
    replaced = sum(len(summary.events) for summary in history)
    told = f"After {len(history)} rounds and {replaced} replacements. Ratings compare members of this run only."
    if last.teachers:
        told += (
            " `solved`: share of the attempts at teachers' tasks that solved them, for a teacher of those at its own; "
            "`fill-ins`: share of a student's attempts that were at tasks from the buffer, where teachers' proposals "
            "were invalid."
        )
    return f"{_table('Last round', columns, rows)}\n\n{told}"


def _members(members: Sequence[Mapping]) -> str:
    rows = [
        (f"`{one['id']}`", one["role"], str(one["version"]), one["operator"], ", ".join(one["parents"]) or NOTHING)
        for one in members
    ]
    return _table("Members", ("folder", "role", "version", "made by", "parents"), rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in (columns, *rows))]
    return "\n".join([*lines[:3], "|---" * len(columns) + "|", *lines[3:]])


def _citation() -> str:
    return f"""## Citation

```bibtex
@misc{{populora,
    title  = {{{TITLE}}},
    author = {{Castanyer and Bradway and Wolf and Lin and Mavor-Parker and Sargent}},
    year   = {{2026}},
    eprint = {{{PAPER}}},
    archivePrefix = {{arXiv}}
}}
```"""


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Settings by name; those inside a mapping as `mapping.key`."""
    for name, value in sorted(settings.items()):
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _code(value: object) -> str:
    return f"`{str(value).replace('|', '/')}`"

"""The model card of a population: the README.md that stands beside its adapters, on disk and on the Hub."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from ..diagnostics import RoundSummary
from ..run_files.files import read_json, write_file
from ..run_files.layout import CARD_FILE, EVALUATION_FILE, EVALUATION_FOLDER, HISTORY_FILE
from ..run_files.run import adapter_fingerprint
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
    evaluation: Mapping[str, Any] | None = None,
) -> str:
    """Text of the card.

    Args:
        table (`Mapping`): Contents of the folder's `population.json`.
        base_model (`str`): Hub id or path of the frozen base.
        repo_id (`str`, *optional*): Where the card will stand; used in its example.
        history (`Sequence[RoundSummary]`, *optional*): Rounds of the run, for results.
        settings (`Mapping`, *optional*): Settings worth telling, by name; two of them word the first lines.
        versions (`Mapping`, *optional*): Package -> version.
        evaluation (`Mapping`, *optional*): Contents of `evaluation.json`.
    """
    members = table["members"]
    sections = [_header(base_model, repo_id, evaluation), _introduction(table, base_model, settings or {})]
    sections.append(_usage(repo_id, base_model, members, history))
    if history:
        sections.append(_results(history))
    if evaluation:
        sections.append(_evaluation(evaluation))
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
    evaluation = read_evaluation(folder)
    text = model_card(table, history=history, versions=versions(), evaluation=evaluation, **about)
    try:
        write_file(os.path.join(folder, CARD_FILE), text)
    except OSError as error:
        logger.warning(f"The model card in {folder} was not written: {error}.")


def read_evaluation(folder: str) -> dict[str, Any] | None:
    """What `populora evaluate` has left in a run's folder, if it is of the weights that are there now."""
    path = os.path.join(folder, EVALUATION_FOLDER, EVALUATION_FILE)
    if not os.path.isfile(path):
        return None
    record = read_json(path, missing="")
    weights = {name: value for name, value in record["weights"].items() if name != "base"}
    if weights != {name: adapter_fingerprint(folder, name) for name in weights}:
        logger.warning(f"{path} is of other weights than those in {folder}; the model card leaves it out.")
        return None
    return record


def eval_results(evaluation: Mapping[str, Any]) -> list[EvalResult]:
    """What members scored, and all of them together, in the Hub's form."""
    results = []
    for exam in evaluation["exams"]:
        drawn = exam["decoding"]
        for name, one in (exam["scores"] | exam["summaries"]).items():
            if name == "base" or one["accuracy"] is None:
                continue
            results.append(
                EvalResult(
                    task_type="text-generation",
                    dataset_type=exam["source"].get("hub") or exam["exam"].partition("[")[0],
                    dataset_name=exam["exam"],
                    dataset_revision=exam["source"].get("revision"),
                    dataset_args={"version": exam["version"], "questions": exam["questions"]},
                    metric_type="accuracy",
                    metric_name=f"accuracy of {_title(name)}, {_drawn(drawn)}",
                    metric_value=round(one["accuracy"], 4),
                )
            )
    return results


def _header(base_model: str, repo_id: str, evaluation: Mapping[str, Any] | None) -> str:
    # A local path is no Hub id, and the Hub refuses a card that names it as one.
    local = os.path.sep in base_model.strip("/") and os.path.exists(base_model)
    data = ModelCardData(
        base_model=None if local else base_model,
        library_name="peft",
        pipeline_tag="text-generation",
        tags=["trl", "grpo", "populora", "self-play", "lora", "population-based-training"],
        model_name=repo_id.rpartition("/")[2].strip("<>") if evaluation else None,
        eval_results=eval_results(evaluation) if evaluation else None,
    )
    return f"---\n{data.to_yaml()}\n---"


def _evaluation(evaluation: Mapping[str, Any]) -> str:
    """A section with a table: exams across, players down."""
    exams = evaluation["exams"]
    names = dict.fromkeys(name for exam in exams for name in exam["scores"] | exam["summaries"] if name != "base")
    cells = []
    for name in [*names, *(["base"] if any("base" in exam["scores"] for exam in exams) else [])]:
        own = [(exam["scores"] | exam["summaries"]).get(name) for exam in exams]
        cells.append((_title(name), *(NOTHING if one is None else _estimate(one) for one in own)))
    told = [
        f"- `{exam['exam']}`: {exam['questions']} questions, version {exam['version']}, {_drawn(exam['decoding'])}, "
        f"at most {exam['decoding']['max_completion_length']} tokens"
        for exam in exams
    ]
    table = _table("Evaluation", ("", *(f"`{exam['exam']}`" for exam in exams)), cells)
    return (
        f"{table}\n\nShares of right answers with 95 % intervals over questions. The best and the weakest are chosen "
        "on other questions than those they are scored on.\n\n" + "\n".join(told)
    )


def _title(name: str) -> str:
    return {"mean": "the mean", "best": "the best elsewhere", "weakest": "the weakest elsewhere"}.get(name, name)


def _drawn(decoding: Mapping[str, Any]) -> str:
    if not decoding["temperature"]:
        return "greedy"
    return f"{_plural(decoding['samples'], 'sample')} at temperature {decoding['temperature']}"


def _estimate(one: Mapping[str, float]) -> str:
    if one["accuracy"] is None:
        return NOTHING
    return f"{100 * one['accuracy']:.1f}% ({100 * one['low']:.1f} to {100 * one['high']:.1f})"


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

"""The model card of a population: the README.md beside its adapters, on disk and on the Hub."""

import logging
import os
import platform
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata as packages
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCardData

from ..diagnostics import RoundSummary
from ..run_files.files import write_file
from ..run_files.layout import CARD_FILE, HISTORY_FILE, PLOTS_FOLDER
from ..run_files.run import BASE, TINY, hub_id
from ..shipped import shipped_base
from .evaluation_file import read_evaluation
from .history import changes, read_history
from .plots import PLOTS
from .tables import NOTHING, counted, drawn_by, fill_ins, percent, signed, strongest


logger = logging.getLogger(__name__)

PACKAGES = ("torch", "trl", "transformers", "peft", "accelerate")
PAPER = "2605.16727"
TITLE = "PopuLoRA: Co-Evolving LLM Populations for Reasoning Self-Play"
TAGS = ("trl", "populora", "lora", "population-based-training")
PAID_TASKS = {
    "adversarial": "that their matched student fails",
    "learnability": "that their matched student solves seldom, but not never",
    "frontier": "that their matched student solves half of the time",
    "solvable": "that their matched student fails and somebody of the population solves",
}
"""`teacher_reward` -> which valid tasks it pays for most, in words."""
SELF_PLAY_REWARD = "self_play_reward"
"""Name of the reward function that every run of self-play has."""

OF_SELF_PLAY = {
    *("prompts_per_teacher", "task_types", "task_kwargs", "prompt_style", "prompt_template", "num_references"),
    *("seed_tasks", "seed_families", "buffer_capacity", "balance_rows", "max_unsolved_tries", "max_prompt_tokens"),
    "reserved_exams",
    *("answer_share", "teacher_reward", "solvable_attempts", "solvable_rounds", "reward_kwargs", "pairing"),
    *("pairing_floor", "hall_of_fame_probability", "hall_of_fame_size", "executor_kwargs", "teacher_learning_rate"),
}
"""Settings without a meaning where there are no teachers."""


def versions() -> dict[str, str]:
    """Versions of the main libraries, and of Python and its SQLite, which decide what programs and queries give."""
    from .. import __version__  # not from the metadata: a checkout need not be installed

    own = {"trl-populora": __version__, "python": platform.python_version()}
    with suppress(ImportError):  # a Python without SQLite
        import sqlite3

        own["sqlite"] = sqlite3.sqlite_version
    return own | {name: packages.version(name) for name in PACKAGES}


def model_card(
    table: Mapping,
    *,
    base_model: str,
    hub_base: str | None = None,
    revision: str | None = None,
    repo_id: str | None = None,
    member: str | None = None,
    history: Sequence[RoundSummary] = (),
    settings: Mapping[str, object] | None = None,
    versions: Mapping[str, str] | None = None,
    dataset: str | None = None,
    rewards: Sequence[str] = (),
    name: str | None = None,
    tags: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    pictures: Sequence[str] = (),
    evaluation: Mapping[str, Any] | None = None,
) -> str:
    """Text of the card.

    Args:
        table (`Mapping`): Contents of the folder's `population.json`.
        base_model (`str`): Name of the frozen base: Hub id, path or `"tiny"`.
        hub_base (`str`, *optional*): Its id on the Hub, if it is there.
        revision (`str`, *optional*): Its commit there.
        repo_id (`str`, *optional*): Repository of the card, for its example. If unset, the example loads from the
            folder of the card.
        member (`str`, *optional*): The only member of the repository, whose adapter is at its root; all if unset.
        history (`Sequence[RoundSummary]`, *optional*): Rounds of the run, for results.
        settings (`Mapping`, *optional*): Settings to show, by name. The first lines use some of them.
        versions (`Mapping`, *optional*): Package -> version.
        dataset (`str`, *optional*): Dataset of the students' prompts, if there were no teachers.
        rewards (`Sequence[str]`, *optional*): Names of the reward functions.
        name (`str`, *optional*): Name of the model, for its title.
        tags (`Sequence[str]`, *optional*): Additional tags.
        metadata (`Mapping`, *optional*): Additional metadata, such as `license`. The card's own metadata have
            priority.
        pictures (`Sequence[str]`, *optional*): Paths of images, relative to the card.
        evaluation (`Mapping`, *optional*): Contents of `evaluation.json`.
    """
    settings, members = dict(settings or {}), table["members"]
    if not table["num_teachers"]:
        settings = {name: value for name, value in settings.items() if name not in OF_SELF_PLAY}
    if member is not None:
        members = [one for one in members if one["id"] == member]
    base = CardBase.named(base_model, hub_base, here=repo_id is None)
    name = name or (repo_id or "").rpartition("/")[2]
    if member is not None:
        title = f"{member} of a PopuLoRA population"
    else:
        title = f"{name}: a PopuLoRA population" if name else "A PopuLoRA population"
    if evaluation and member is not None:
        evaluation = _of_member(evaluation, member)
    if evaluation and not evaluation["exams"]:
        evaluation = None
    kinds = ["sft"] if _is_warm_start(settings) else ["grpo"] + ["self-play"] * bool(table["num_teachers"])
    head = _header(base, dataset, name or title, [*kinds, *tags], metadata, evaluation)
    sections = [head, f"# {title}\n\n{_introduction(table, base, settings, dataset, rewards, member)}"]
    sections.append(_usage(repo_id, base, revision, members, history, alone=member is not None))
    if history:
        sections.append(_results(history, members))
    if evaluation:
        sections.append(_evaluation(evaluation))
    if pictures and member is None:
        shown = (f"![{os.path.splitext(os.path.basename(path))[0].replace('_', ' ')}]({path})" for path in pictures)
        sections.append("## Pictures\n\n" + "\n\n".join(shown))
    sections.append(_members(members))
    if settings:
        rows = [(f"`{name}`", _code(value)) for name, value in _flat(settings)]
        sections.append(_table("Settings", ("setting", "value"), rows))
    if versions:
        sections.append("## Versions\n\n" + "\n".join(f"- {name} {version}" for name, version in versions.items()))
    sections.append(_citation())
    return "\n\n".join(sections) + "\n"


def results_of(folder: str, *, until: int | None = None) -> dict[str, Any]:
    """Results in a run's folder for its card: the rounds so far, scores and pictures.

    Args:
        folder (`str`): Folder of the run's record.
        until (`int`, *optional*): Step of a checkpoint, whose card has only the rounds before it. Scores and pictures
            are of the whole run.
    """
    history = read_history(folder) if os.path.isfile(os.path.join(folder, HISTORY_FILE)) else []
    if until is not None:
        return {"history": [summary for summary in history if summary.step < until]}
    return {"history": history, "evaluation": shown_evaluation(folder), "pictures": pictures_of(folder)}


def shown_evaluation(folder: str) -> dict[str, Any] | None:
    """The evaluation of a run, if it has one of the weights that are there; else a warning says why."""
    try:
        return read_evaluation(folder, archived=False)
    except ValueError as error:
        logger.warning(f"The model card leaves an evaluation out: {error}")
        return None


def pictures_of(folder: str) -> list[str]:
    """The plots of a run, as paths in its folder."""
    names = sorted(f"{PLOTS_FOLDER}/{name}.png" for name in (*PLOTS, "probes"))
    return [name for name in names if os.path.isfile(os.path.join(folder, name))]


def write_card(folder: str, table: Mapping, **about: Any) -> None:
    """Writes a run's card, with its results so far; `about` as in [`model_card`]. Warns if it fails."""
    text = model_card(table, **results_of(folder), **about)
    try:
        write_file(os.path.join(folder, CARD_FILE), text)
    except OSError as error:
        logger.warning(f"The model card in {folder} was not written: {error}.")


class CardBase(NamedTuple):
    """How a card speaks of the base model.

    Attributes:
        id (`str` or `None`): Its Hub id, if it is on the Hub. words (`str`): What it is. line (`str`): Python that
            names it in the example.
    """

    id: str | None
    words: str
    line: str

    @classmethod
    def named(cls, base_model: str, id: str | None, *, here: bool) -> "CardBase":
        """The base of a card on this machine, or of a repository, whose readers need no path of ours."""
        if id is not None:
            return cls(id, f"[`{id}`](https://huggingface.co/{id})", f'base = "{id}"')
        if folder := "recipes/tiny/base" if base_model == TINY else shipped_base(base_model):
            command = f"`populora recipes copy {folder.split('/')[1]}`"
            name = base_model if base_model == TINY else folder
            words = f"`{name}`, which is not on the Hub but comes with trl-populora ({command})"
            line = f'base = "{folder}"  # after {command}'
        else:
            own = os.path.basename(os.path.normpath(base_model))
            words = f"`{own}`, a local model that is not on the Hub: only people who have it can use the adapters"
            line = f'base = "{own}"  # the folder of the base model'
        if here and base_model != TINY:  # the example runs in the folder of the card
            path = os.path.abspath(os.path.expanduser(base_model))
            line = f'base = "{path}"  # where the base model was when this was written'
        return cls(None, words, line)


def eval_results(evaluation: Mapping[str, Any]) -> list[EvalResult]:
    """Scores of the members and their mean, in the format of the Hub."""
    results = []
    for exam in evaluation["exams"]:
        drawn = exam["decoding"]
        for name, one in (exam["scores"] | exam["summaries"]).items():
            if name == BASE or one["accuracy"] is None:
                continue
            results.append(
                EvalResult(
                    task_type="text-generation",
                    dataset_type=exam["source"].get("hub") or exam["exam"].partition("[")[0],
                    dataset_name=exam["exam"],
                    dataset_revision=exam["source"].get("revision"),
                    dataset_args={"version": exam["version"], "questions": exam["questions"]},
                    metric_type="accuracy",
                    metric_name=f"accuracy of {_title(name)}, {drawn_by(drawn)}",
                    metric_value=round(one["accuracy"], 4),
                )
            )
    return results


def _of_member(evaluation: Mapping[str, Any], member: str) -> dict[str, Any]:
    """An evaluation's scores of one member, and of the base."""
    kept = (member, BASE)
    exams = [
        {**exam, "scores": {name: one for name, one in exam["scores"].items() if name in kept}, "summaries": {}}
        for exam in evaluation["exams"]
    ]
    return {**evaluation, "exams": [exam for exam in exams if member in exam["scores"]]}


def _evaluation(evaluation: Mapping[str, Any]) -> str:
    """A section with a table: exams across, players down."""
    exams = evaluation["exams"]
    names = dict.fromkeys(name for exam in exams for name in exam["scores"] | exam["summaries"] if name != BASE)
    cells = []
    for name in [*names, *([BASE] if any(BASE in exam["scores"] for exam in exams) else [])]:
        own = [(exam["scores"] | exam["summaries"]).get(name) for exam in exams]
        cells.append((_title(name), *(NOTHING if one is None else _estimate(one) for one in own)))
    told = [
        f"- `{exam['exam']}`: {exam['questions']} questions, version {exam['version']}, {drawn_by(exam['decoding'])}, "
        f"at most {exam['decoding']['max_completion_length']} tokens"
        for exam in exams
    ]
    table = _table("Evaluation", ("", *(f"`{exam['exam']}`" for exam in exams)), cells)
    chosen = any("best" in exam["summaries"] for exam in exams)
    how = " The best and the weakest are chosen on other questions than those they are scored on." if chosen else ""
    return f"{table}\n\nShares of right answers with 95 % intervals over questions.{how}\n\n" + "\n".join(told)


def _title(name: str) -> str:
    return {"mean": "the mean", "best": "the best elsewhere", "weakest": "the weakest elsewhere"}.get(name, name)


def _estimate(one: Mapping[str, float]) -> str:
    if one["accuracy"] is None:
        return NOTHING
    return f"{100 * one['accuracy']:.1f}% ({100 * one['low']:.1f} to {100 * one['high']:.1f})"


def _header(
    base: CardBase,
    dataset: str | None,
    name: str,
    tags: Sequence[str],
    metadata: Mapping[str, Any] | None,
    evaluation: Mapping[str, Any] | None,
) -> str:
    known = {
        # A local path is no Hub id, and the Hub refuses a card that names it as one.
        "base_model": base.id,
        "base_model_relation": base.id and "adapter",
        "datasets": [dataset] if dataset and hub_id(dataset) else None,
        "library_name": "peft",
        "pipeline_tag": "text-generation",
    }
    if evaluation:
        known |= {"model_name": name, "eval_results": eval_results(evaluation)}
    known = {key: value for key, value in known.items() if value is not None}
    data = ModelCardData(**{**(metadata or {}), **known, "tags": [*TAGS, *tags]})
    return f"---\n{data.to_yaml()}\n---"


def _introduction(
    table: Mapping,
    base: CardBase,
    settings: Mapping,
    dataset: str | None,
    rewards: Sequence[str],
    member: str | None,
) -> str:
    cite = f"[{TITLE}](https://huggingface.co/papers/{PAPER})."
    who = _who(table, base, member)
    every, roles = settings.get("recombination_interval"), settings.get("recombination_roles", "both")
    who_moves = "Members of a role" if roles == "both" else roles.capitalize()
    apart = ", except in rounds with a replacement" if settings.get("evolution_interval") else ""
    mixed = f" {who_moves} moved to their mean update every {every} rounds{apart}." if every else ""
    others = [f"`{name}`" for name in rewards if name != SELF_PLAY_REWARD]
    if not table["num_teachers"]:
        by = f" ({', '.join(others)})" if others else ""
        evolved = (
            ", and weak ones were replaced by variants of strong ones" if settings.get("evolution_interval") else ""
        )
        return (
            f"{who}. The students were trained by GRPO on {_prompts(dataset)}, each by the rewards{by} of its "
            f"own completions{evolved}.{mixed} Populations of adapters: {cite}"
        )
    reward, types = settings.get("teacher_reward"), settings.get("task_types")
    kinds = f" ({', '.join(f'`{name}`' for name in types)})" if types else ""
    if _is_warm_start(settings):
        return (
            f"{who}. Teachers were shown seed tasks{kinds}, students their answers, for "
            f"{counted(settings['warm_start_steps'], 'supervised step')} (a warm start). No self-play followed. "
            f"For populations that play: {cite}"
        )
    wanted = f" {PAID_TASKS.get(reward, f'that the reward function `{reward}` pays for')}" if reward else ""
    besides = f" Reward functions of the run's own were added: {', '.join(others)}." if others else ""
    return (
        f"{who}. Teachers were trained to propose valid tasks{kinds}{wanted}, students to solve them. Programs and "
        f"parsers judge the answers, and no model does.{besides}{mixed} Method: {cite}"
    )


def _is_warm_start(settings: Mapping) -> bool:
    """Whether these are the settings of `populora warmup`, which has no rewards."""
    return "warm_start_steps" in settings and "teacher_reward" not in settings


def _who(table: Mapping, base: CardBase, member: str | None) -> str:
    if table["shared_member"]:
        return f"One LoRA adapter that both proposes and solves tasks, on the frozen base {base.words}"
    roles = [(table["num_teachers"], "teacher"), (table["num_students"], "student")]
    population = " and ".join(counted(count, role) for count, role in roles if count)
    if member is None:
        return f"{population}, each a LoRA adapter, on the frozen base {base.words}"
    return f"A LoRA adapter on the frozen base {base.words}, trained in a population of {population}"


def _prompts(dataset: str | None) -> str:
    """The prompts that students were trained on, in words."""
    if dataset is None:
        return "given prompts"
    if hub_id(dataset):
        return f"the prompts of [`{dataset}`](https://huggingface.co/datasets/{dataset})"
    return f"the prompts of `{os.path.basename(os.path.normpath(dataset))}`"


def _usage(
    repo_id: str | None,
    base: CardBase,
    revision: str | None,
    members: Sequence[Mapping],
    history: Sequence[RoundSummary],
    *,
    alone: bool,
) -> str:
    best = strongest(history[-1], "student") if history else None
    names = [member["id"] for member in members]
    name = best.name if best is not None and best.name in names else names[-1]
    place = f'"{repo_id or "."}"' if alone else f'"{repo_id}", subfolder="{name}"' if repo_id else f'"{name}"'
    which = f'base, revision="{revision}"' if revision else "base"
    told = "The repository is" if alone else "Every member's folder is"
    where = "" if repo_id else ", and is loaded here from where this file stands"
    pulled = (
        f" vLLM and SGLang serve local folders: `populora pull {repo_id} --output DIR` brings them." if repo_id else ""
    )
    return f"""## Use

{told} an ordinary PEFT adapter{where}.{pulled}

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

{base.line}
tokenizer = AutoTokenizer.from_pretrained({which})
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({which}), {place})
```"""


def _results(history: Sequence[RoundSummary], members: Sequence[Mapping]) -> str:
    last, rows, names = history[-1], [], {member["id"] for member in members}
    if not last.teachers:
        return _rewards(history, names)
    for member in (one for one in last.members if one.name in names):
        rating, shares = f"{member.mu:.1f}, {member.sigma:.1f}", map(percent, (member.validity, member.solve_rate))
        rows.append((member.name, rating, *shares, fill_ins(member), signed(member.reward)))
    columns = ("member", "rating (mu, sigma)", "valid", "solved", "fill-ins (solved)", "reward")
    told = (
        f"After {counted(last.round + 1, 'round')} with {changes(history)}. Ratings compare members of this run only. "
        "`solved`: share of the attempts at teachers' tasks that solved them, for a teacher of those at its own, as a "
        "mean over task types; "
        "`fill-ins`: share of a student's attempts that were at tasks from the buffer, where teachers' proposals "
        "were invalid."
    )
    return f"{_table('Last round', columns, rows)}\n\n{told}"


def _rewards(history: Sequence[RoundSummary], names: Collection[str]) -> str:
    """Results of a run on a dataset: members are compared by their mean reward."""
    rows = [(one.name, signed(one.reward), signed(one.mu)) for one in history[-1].members if one.name in names]
    told = (
        f"After {counted(history[-1].round + 1, 'round')} with {changes(history)}. `running reward`: mean of the last "
        f"rounds; of a member that replaced another one lately, its parents' mean counts as a round."
    )
    return f"{_table('Last round', ('member', 'reward', 'running reward'), rows)}\n\n{told}"


def _members(members: Sequence[Mapping]) -> str:
    rows = [
        (f"`{one['id']}`", one["role"], str(one["version"]), one["operator"], ", ".join(one["parents"]) or NOTHING)
        for one in members
    ]
    text = _table("Members", ("folder", "role", "version", "made by", "parents"), rows)
    own = [f"`{one['id']}` {one['temperature']:g}" for one in members if one.get("temperature", 1.0) != 1.0]
    if own:
        text += f"\n\nSampling temperatures, as multiples of the run's: {', '.join(own)}; 1 for the others."
    return text


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


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Settings by name; those inside a mapping as `mapping.key`."""
    for name, value in sorted(settings.items()):
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _code(value: object) -> str:
    return f"`{' '.join(str(value).replace('|', '/').split())}`"

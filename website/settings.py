"""The page of all settings, written from the dataclasses that hold them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

from transformers import TrainingArguments
from trl import GRPOConfig
from trl.trainer.base_config import _BaseConfig

from trl_populora.recipe import RunArguments
from trl_populora.tasks import known_task_types, task_type_class
from trl_populora.training import PopulationSelfPlayConfig
from trl_populora.training.nested import COMMON, NESTED


PREFACE = """\
# Every setting

Written from the dataclasses while the site was built. A setting can stand in a recipe (`num_students: 8`), on the
command line (`--num_students 8`) or in the constructor of `PopulationSelfPlayConfig` (`num_students=8`).
[Configuration](../configuration.md) explains how the important ones work together, and which values a population
refuses.
"""
ENTRY = re.compile(r"^( +)(\w+(?:, \w+)*) \(.+?\):((?: .+)?(?:\n\1 +\S.*)*)", re.MULTILINE)
"""An entry of a docstring: its indentation, the fields, and what it says of them."""


def settings_page() -> str:
    """Markdown of the page."""
    return "\n".join(_lines()) + "\n"


def owners() -> dict[str, type]:
    """Name of a setting of the trainer -> the class that defines it first, of `PopulationSelfPlayConfig`'s parents."""
    found: dict[str, type] = {}
    for cls in (TrainingArguments, _BaseConfig, GRPOConfig, PopulationSelfPlayConfig):
        for field in fields(cls):
            found.setdefault(field.name, cls)
    return found


def _lines() -> Iterator[str]:
    yield PREFACE
    own = owners()
    by_class = {cls: [f for f in fields(PopulationSelfPlayConfig) if own[f.name] is cls] for cls in set(own.values())}
    yield "## The run\n"
    yield "Of recipes and the command line: fields of `RunArguments` in [`recipe.py`](../../trl_populora/recipe.py).\n"
    yield from _table(RunArguments, fields(RunArguments))
    yield "## The population\n"
    yield ("Fields of `PopulationSelfPlayConfig` in [`training/config.py`](../../trl_populora/training/config.py).\n")
    yield from _table(PopulationSelfPlayConfig, by_class[PopulationSelfPlayConfig])
    yield "## Mappings\n"
    yield "Each of these settings is a mapping with the keys of a dataclass.\n"
    for name, nested in NESTED.items():
        yield f"### `{name}`\n"
        yield _place(nested.record)
        yield from _table(nested.record, [f for f in fields(nested.record) if f.name not in nested.without])
    yield "### `task_kwargs`\n"
    yield "Ids of task types, each with the fields of its class. Every type has `style` and `num_references`.\n"
    for name in known_task_types():
        kind = task_type_class(name)
        yield f"#### `{name}`\n"
        yield _place(kind)
        yield from _table(kind, [f for f in fields(kind) if f.init and f.name not in COMMON])
    yield "## Of GRPO\n"
    yield "Inherited from `trl.GRPOConfig`. The text is TRL's. A default in bold differs from TRL's.\n"
    yield from _table(GRPOConfig, by_class[GRPOConfig])
    yield "## Of the trainer\n"
    yield "Inherited from `transformers.TrainingArguments`. The text is that of transformers. Bold defaults differ.\n"
    yield from _table(TrainingArguments, [*by_class.get(_BaseConfig, []), *by_class[TrainingArguments]])


def _place(record: type) -> str:
    path = record.__module__.replace(".", "/")
    return f"Fields of `{record.__name__}` in [`{path}.py`](../../{path}.py).\n"


def _table(record: type, chosen: Sequence[Field]) -> Iterator[str]:
    hints, inherited = get_type_hints(record), {f.name: f for f in fields(record)}
    texts = _texts(record)
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for field in chosen:
        hint = hints[field.name]
        default = _default(field)
        if field.name in inherited and default != _default(inherited[field.name]):
            default = f"**{default}**"
        text = texts.get(field.name) or field.metadata.get("help") or ""
        meaning = " ".join(text.replace("%%", "%").split()).replace("|", "\\|").replace("<", "&lt;")
        yield f"| `{field.name}` | {_type(hint)} | {default} | {_plain_links(meaning) or '–'} |"
    yield ""


def _texts(record: type) -> dict[str, str]:
    """What the docstrings of a dataclass and its parents say of its fields."""
    found: dict[str, str] = {}
    for cls in reversed(record.__mro__):
        if cls.__module__.startswith("trl_populora"):
            for _, names, text in ENTRY.findall(cls.__doc__ or ""):
                found |= dict.fromkeys(names.split(", "), text)
    return found


def _default(field: Field) -> str:
    value: Any = field.default
    if value is MISSING:
        value = field.default_factory() if field.default_factory is not MISSING else "required"
    value = getattr(value, "value", value)
    if value is None or value == "":
        return "unset"
    if isinstance(value, tuple):
        value = list(value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not getattr(hint, "__args__", None) else str(hint)
    for prefix in ("typing.", "transformers.trainer_utils.", "transformers.training_args."):
        text = text.replace(prefix, "")
    text = text.replace("collections.abc.", "").replace("NoneType", "None").removesuffix(" | None")
    return f"`{text.replace(' | ', ' or ')}`"


def _plain_links(text: str) -> str:
    """A class in brackets, as docstrings write it, becomes its name."""
    return re.sub(r"\[(`~?)([^`\]]+)`\]", lambda match: f"`{match[2]}`", text)

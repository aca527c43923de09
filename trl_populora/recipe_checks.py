"""Finds mistakes in a recipe and a command line before TRL and PyTorch are imported, which takes seconds.

Names, types and defaults of all settings are read from the source code of their classes. The settings check everything
else later, when they are constructed.
"""

import ast
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from .settings import suggest


CONFIGS = (
    ("transformers", "training_args.py", "TrainingArguments"),
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("trl", "trainer/grpo_config.py", "GRPOConfig"),
    ("trl_populora", "training/config.py", "PopulationSelfPlayConfig"),
    ("trl_populora", "recipe.py", "RunArguments"),
)
"""Package, file and class of each dataclass with settings of a run. If two share a field, the later one counts."""
PLAIN = {"bool", "float", "int", "str", "None"}
YES_OR_NO = {"true", "false", "yes", "no", "t", "f", "y", "n", "1", "0"}
"""What a command line may say for true and false."""


class Setting(NamedTuple):
    """A setting as its source shows it.

    Attributes:
        kinds (`frozenset[str]`): Names of the types that it may have.
        default (`Any`): Its default; `...` if it has none or the default is not a literal.
    """

    kinds: frozenset[str]
    default: Any


@cache
def read_settings() -> dict[str, Setting]:
    """All settings of a run by name; empty if a class is not found in its file."""
    found: dict[str, Setting] = {}
    for package, path, name in CONFIGS:
        spec = importlib.util.find_spec(package)
        places = spec.submodule_search_locations if spec else None
        file = os.path.join(places[0], path) if places else ""
        if not os.path.isfile(file):
            return {}
        with open(file, encoding="utf-8") as source:
            body = ast.parse(source.read()).body
        classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
        if not classes:
            return {}
        for node in classes[0].body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                kinds = frozenset(_kinds(node.annotation))
                found[node.target.id] = Setting(kinds, _default(node.value))
    return found


def check_call(argv: Sequence[str], recipe: Mapping[str, Any]) -> None:
    """Refuses unknown names, and values with which no population can be made.

    Args:
        argv (`Sequence[str]`): The command line, whose values win.
        recipe (`Mapping[str, Any]`): What the file behind `--config` holds.

    Raises:
        ValueError: Naming the setting and its value; with the closest name, if there is no such setting.
    """
    if argv and not argv[0].startswith("-"):  # as of a recipe without --config, which would not be read
        raise ValueError(f"Unknown argument {argv[0]!r}. If it is a recipe, write --config {argv[0]}.")
    known = read_settings()
    if not known:
        return
    for key in recipe:
        if key not in known and key != "env":
            raise ValueError(f"Unknown setting {key!r} in the recipe. {suggest(key, known, '')}".rstrip())
    options = list(_options(argv, known))
    given = {key: value for key, value in recipe.items() if key in known}
    for key, value in given.items():
        _check_value(key, value, known[key].kinds)
    for option, key, text in options:
        if key is not None and text is not None:
            _check_text(option, text, known[key].kinds)
            given[key] = text
    _check_numbers({key: _read(value, known[key].kinds) for key, value in given.items()}, known)


def _kinds(hint: ast.expr) -> Iterator[str]:
    """Names of the types in a hint such as `int | None`."""
    if isinstance(hint, ast.BinOp):
        yield from _kinds(hint.left)
        yield from _kinds(hint.right)
    else:
        yield ast.unparse(hint)


def _default(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call):  # field(default=...)
        value = next((word.value for word in value.keywords if word.arg == "default"), None)
    try:
        return ... if value is None else ast.literal_eval(value)
    except ValueError:
        return ...


def _options(argv: Sequence[str], known: Mapping[str, Setting]) -> Iterator[tuple[str, str | None, str | None]]:
    """Option, name of its setting, and text of its value. A name is `None` if ambiguous, a text if there is none.

    The beginning of a name is enough, as in argparse.
    """
    for argument, after in zip(argv, (*argv[1:], "--")):
        option, _, text = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not argument.startswith("--") or name in ("config", "help"):
            continue
        meant = [name] if name in known else [one for one in known if one.startswith(name)]
        if not meant and not any(f"no_{one}".startswith(name) for one in known):
            hint = suggest(option, [f"--{one}" for one in known], "")
            raise ValueError(f"Unknown option {argument!r}. {hint}".rstrip())
        follows = None if after.startswith("--") else after
        yield option, meant[0] if len(meant) == 1 else None, text if "=" in argument else follows


def _check_value(key: str, value: Any, kinds: frozenset[str]) -> None:
    """Refuses a value in a recipe that does not fit its setting."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None:
        if "None" not in kinds:
            raise ValueError(f"{key} is empty in the recipe. Give a value, or leave it out for the default.")
    elif number and kinds <= {"str", "None"}:
        raise ValueError(f"{key}={value!r} in the recipe must be text: put it in quotes.")
    elif isinstance(value, int | float) and all(kind.startswith("list") for kind in kinds - {"None"}):
        raise ValueError(f"{key}={value!r} in the recipe must be a list: [{value!r}].")
    elif wanted := _wanted(value, kinds):
        raise ValueError(f"{key}={value!r} in the recipe must be {wanted}.")


def _check_text(option: str, text: str, kinds: frozenset[str]) -> None:
    """Refuses a text on the command line that does not fit its setting."""
    if text != "None" and (wanted := _wanted(text, kinds)):
        raise ValueError(f"{option} {text} must be {wanted}.")


def _wanted(value: Any, kinds: frozenset[str]) -> str | None:
    """What the value must be, in words; `None` if it fits these types."""
    text = str(value)
    if "str" in kinds or not kinds <= PLAIN:
        return None
    if "bool" in kinds:
        return None if isinstance(value, bool) or text.lower() in YES_OR_NO else "true or false"
    if isinstance(value, bool):
        return "a number" if "float" in kinds else "a whole number"
    if "float" in kinds:
        return None if _is_float(text) else "a number"
    return None if re.fullmatch(r"[-+]?[0-9]+", text) else "a whole number"


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read(value: Any, kinds: frozenset[str]) -> Any:
    """The number, boolean or `None` that a text means; other values do not change."""
    if isinstance(value, str) and "bool" in kinds and value.lower() in YES_OR_NO:  # also where texts are allowed
        return value.lower() in ("true", "yes", "t", "y", "1")
    if not isinstance(value, str) or "str" in kinds or not kinds <= PLAIN:
        return value
    if value == "None":
        return None
    return float(value) if "float" in kinds else int(value)


def _check_numbers(given: Mapping[str, Any], known: Mapping[str, Setting]) -> None:
    """Those checks of a population's settings that need no other package, on the given values and the defaults."""
    from .tasks import task_type_class
    from .training.checks import check_choices, check_numbers

    values = {name: setting.default for name, setting in known.items() if setting.default is not ...}
    settings: Any = SimpleNamespace(**{**values, **given})
    check_choices(settings)
    check_numbers(settings)
    types = given.get("task_types")
    for name in [types] if isinstance(types, str) else types or ():
        if isinstance(name, str) and ":" not in name:
            task_type_class(name)

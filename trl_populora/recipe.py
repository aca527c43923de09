"""Reads a recipe and a command line into settings: those of a run, and those of its trainer.

An error is one sentence that names the setting. The settings classes themselves check the values.
"""

import ast
import importlib.util
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from types import NoneType
from typing import TYPE_CHECKING, Any, Never, get_args, get_type_hints

from .integrations.base_models import check_folder
from .settings import conform, documented


if TYPE_CHECKING:
    from .training import PopulationSelfPlayConfig

CONFIGS = (
    (__package__, "training/config.py", "PopulationSelfPlayConfig"),
    ("trl", "trainer/grpo_config.py", "GRPOConfig"),
    ("trl", "trainer/base_config.py", "_BaseConfig"),
    ("transformers", "training_args.py", "TrainingArguments"),
)
"""Package, file and class of all settings of a run, besides `RunArguments`."""


@documented
@dataclass
class RunArguments:
    """Settings of a run that are not settings of the trainer.

    Args:
        model_name_or_path (`str`):
            Base model: a Hub id, a folder, or `"tiny"`.
        dataset_name (`str`, *optional*):
            Prompts to train the students on, with `num_teachers=0`: a Hub id, a file or a saved dataset.
        dataset_config (`str`, *optional*):
            Configuration of the dataset on the Hub.
        dataset_split (`str`, *optional*, defaults to `"train"`):
            Split of the dataset.
        reward_funcs (`list[str]`, *optional*):
            Reward functions: `module.function`, or names from `trl.rewards`. In self-play, they are added to
            the rewards of the game.
        sampler (`str`, *optional*):
            Your own sampler for completions, instead of `use_vllm`: `module:Name` of a class or function
            (docs/samplers.md).
        sampler_kwargs (`dict`, *optional*):
            Additional arguments of the sampler.
        warm_start_steps (`int`, *optional*, defaults to `0`):
            Number of supervised steps before self-play, on seed tasks in the required formats. 0 starts self-play from
            fresh adapters. Cannot be used with `beta > 0`, because the reference model is the base without these
            steps.
        warm_start_rows (`int`, *optional*, defaults to `8`):
            Rows per role in one step of the warm start.
        warm_start_learning_rate (`float`, *optional*, defaults to `1e-3`):
            Peak learning rate of the warm start.
        final_exams (`list[str]`, *optional*):
            Exams for the students and the base after training, such as `[held_out, gsm8k]`, with the names of
            `populora evaluate --exams`. The files of benchmarks are in `probe_kwargs.data`. Works only with a single
            process.
        final_exams_limit (`int`, *optional*):
            Use only the first questions of each exam, up to this number; all if unset.
        plots (`bool`, *optional*, defaults to `True`):
            Whether to save plots at the end, if matplotlib is installed.
        table_every (`int`, *optional*, defaults to `1`):
            If the output is not a terminal (a file or a pipe), write the table of members every `table_every` rounds.
            One line per round is always written.
    """

    model_name_or_path: str = ""
    dataset_name: str | None = None
    dataset_config: str | None = None
    dataset_split: str = "train"
    reward_funcs: list[str] | None = None
    sampler: str | None = None
    sampler_kwargs: dict | str | None = None
    warm_start_steps: int = 0
    warm_start_rows: int = 8
    warm_start_learning_rate: float = 1e-3
    final_exams: list[str] | None = None
    final_exams_limit: int | None = None
    plots: bool = True
    table_every: int = 1

    def __post_init__(self) -> None:
        conform(self, own={f.name for f in fields(self)})
        if not self.model_name_or_path:
            raise ValueError("model_name_or_path is not set: name a Hub id, a folder or 'tiny' in the recipe.")
        if self.final_exams_limit is not None and self.final_exams_limit < 1:
            raise ValueError(f"final_exams_limit={self.final_exams_limit} must be at least 1.")
        if self.warm_start_rows < 1:
            raise ValueError(f"warm_start_rows={self.warm_start_rows} must be at least 1.")
        if self.warm_start_steps < 0:
            raise ValueError(f"warm_start_steps={self.warm_start_steps} must not be negative.")
        if self.warm_start_learning_rate <= 0:
            raise ValueError(f"warm_start_learning_rate={self.warm_start_learning_rate} must be positive.")


def parse(argv: list[str], *, base_here: bool = False) -> "tuple[RunArguments, PopulationSelfPlayConfig]":
    """Reads recipe and command line into (`RunArguments`, `PopulationSelfPlayConfig`); the command line wins.

    Args:
        argv (`list[str]`): The command line.
        base_here (`bool`, *optional*, defaults to `False`): Whether to refuse at once a base that is a missing
            folder.

    Raises:
        ValueError: For anything that cannot be used, in one sentence.
    """
    for i, argument in enumerate(argv):
        if argument.startswith("--config="):
            argv[i : i + 1] = argument.split("=", 1)
    recipe = read_recipe(argv) if "--config" in argv else {}
    check_names(argv, recipe)  # before the imports below, which take seconds
    if base_here and (base := named_base(argv, recipe)):
        check_folder(base)

    from trl import TrlParser

    from .training import PopulationSelfPlayConfig

    class Parser(TrlParser):
        def error(self, message: str) -> Never:  # argparse would print four hundred options first
            raise ValueError(f"{message[:1].upper()}{message[1:]}.")

    quiet_libraries()
    check_recipe(recipe, (RunArguments, PopulationSelfPlayConfig))
    parser = Parser((RunArguments, PopulationSelfPlayConfig))
    run, args, unknown = parser.parse_args_and_config(argv, return_remaining_strings=True)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        raise ValueError(f"Unknown option {unknown[0]!r}{_closest(unknown[0].split('=')[0], known)}")
    return run, args


def setting_names() -> set[str]:
    """Names of all settings of a run, read from the sources of their classes; empty if one is not where it was.

    To import those classes takes seconds, and a typing error is to be told at once.
    """
    names = {f.name for f in fields(RunArguments)}
    for package, path, name in CONFIGS:
        spec = importlib.util.find_spec(package)
        file = os.path.join(spec.submodule_search_locations[0], path) if spec else ""
        if not os.path.isfile(file):
            return set()
        with open(file, encoding="utf-8") as source:
            body = ast.parse(source.read()).body
        found = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
        if not found:
            return set()
        names |= {node.target.id for node in found[0].body if isinstance(node, ast.AnnAssign)}
    return names


def check_names(argv: Sequence[str], recipe: Mapping) -> None:
    """Refuse names that no setting has, without TRL and PyTorch.

    Raises:
        ValueError: Naming it, and the closest setting.
    """
    known = setting_names()
    if not known:
        return
    _check_keys(recipe, known | {"env"})
    for argument in argv:
        name = argument.removeprefix("--").split("=")[0].replace("-", "_")
        if not argument.startswith("--") or name in ("config", "help"):
            continue
        # argparse takes the beginning of a name for the name
        if not any(one.startswith(name) or f"no_{one}".startswith(name) for one in known):
            near = _closest(argument.split("=")[0], [f"--{one}" for one in known])
            raise ValueError(f"Unknown option {argument!r}{near}")


def named_base(argv: Sequence[str], recipe: Mapping) -> str:
    """The base of a recipe and command line; empty if there is none."""
    found = str(recipe.get("model_name_or_path") or "")
    for option, value in zip(argv, (*argv[1:], "")):
        name, _, own = option.replace("-", "_").partition("=")
        if name == "__model_name_or_path":
            found = option.partition("=")[2] if own else value
    return found


def _check_keys(recipe: Mapping, known: Iterable[str]) -> None:
    unknown = next((key for key in recipe if key not in known), None)
    if unknown is not None:
        raise ValueError(f"Unknown setting {unknown!r} in the recipe{_closest(str(unknown), known)}")


def read_recipe(argv: list[str]) -> dict[str, Any]:
    """The mapping in the file that follows `--config`."""
    position = argv.index("--config") + 1
    if position == len(argv):
        raise ValueError("--config needs the path of a recipe.")
    return read_mapping(argv[position])


def read_mapping(path: str) -> dict[str, Any]:
    """What a YAML file with a mapping holds.

    Raises:
        ValueError: If it cannot be read, or holds something else.
    """
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must be a mapping of names to values.")
    return found


def check_recipe(recipe: Mapping, dataclasses: Sequence[type]) -> None:
    """Refuse keys that no setting has, and values that no command line could give.

    Raises:
        ValueError: Naming the key, and the closest setting.
    """
    hints = {name: hint for cls in dataclasses for name, hint in get_type_hints(cls).items()}
    known = {f.name for cls in dataclasses for f in fields(cls) if f.init} | {"env"}
    _check_keys(recipe, known)
    for key, value in recipe.items():
        kinds = set(get_args(hints.get(key)) or (hints.get(key),))
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kinds - {NoneType} == {int} and not _whole(value, optional=NoneType in kinds):
            raise ValueError(f"{key}={value!r} in the recipe must be a whole number.")
        if value is None and key in hints and NoneType not in kinds:
            raise ValueError(f"{key} is empty in the recipe. Give a value, or leave it out for the default.")
        if number and kinds <= {str, NoneType}:
            raise ValueError(f"{key}={value!r} in the recipe must be text: put it in quotes.")


def quiet_libraries() -> None:
    """Turns off other libraries' progress bars, and their warnings that a user cannot act on."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*deprecated and will be removed in v6.*", category=FutureWarning)


def _whole(value: object, *, optional: bool) -> bool:
    if value is None or isinstance(value, bool):
        return value is None and optional
    return isinstance(value, int) or (isinstance(value, str) and value.lstrip("+-").isdigit())


def _closest(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."

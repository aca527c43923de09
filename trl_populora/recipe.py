"""Reads a recipe and a command line into settings: those of a run, and those of its trainer.

An error is one sentence that names the setting. The settings classes themselves check the values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Never

from .integrations.base_models import check_folder
from .quiet import hide_loading_bars
from .recipe_checks import check_call
from .settings import conform, documented, suggest
from .shipped import told_if_shipped


if TYPE_CHECKING:
    from .training import PopulationSelfPlayConfig


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
            Configuration of a dataset on the Hub.
        dataset_split (`str`, *optional*, defaults to `"train"`):
            Split of the dataset, or a part of it such as `"train[:100]"`. A file has only `"train"`.
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
        if not 0 < self.warm_start_learning_rate < math.inf:
            raise ValueError(f"warm_start_learning_rate={self.warm_start_learning_rate} must be positive and finite.")


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
    check_call(argv, recipe)  # before the imports below, which take seconds
    if base_here and (base := named_base(argv, recipe)):
        check_folder(base)

    from trl import TrlParser

    from .training import PopulationSelfPlayConfig

    class Parser(TrlParser):
        def error(self, message: str) -> Never:  # argparse would print four hundred options first
            raise ValueError(f"{message[:1].upper()}{message[1:]}.")

    hide_loading_bars()
    both: Any = (RunArguments, PopulationSelfPlayConfig)  # transformers' hint allows no class of ours
    parser = Parser(both)
    run, args, unknown = parser.parse_args_and_config(argv, return_remaining_strings=True)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        raise ValueError(f"Unknown option {unknown[0]!r}. {suggest(unknown[0].split('=')[0], known, '')}".rstrip())
    return run, args


def named_base(argv: Sequence[str], recipe: Mapping) -> str:
    """The base of a recipe and command line; empty if there is none."""
    found = str(recipe.get("model_name_or_path") or "")
    for option, value in zip(argv, (*argv[1:], "")):
        name, _, own = option.replace("-", "_").partition("=")
        if name == "__model_name_or_path":
            found = option.partition("=")[2] if own else value
    return found


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

    class Loader(yaml.SafeLoader):
        """Refuses a key that is given twice; YAML would take the last one."""

        def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
            node, seen = super().compose_mapping_node(anchor), set()
            for key in (key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"):
                if (name := (key.tag, str(key.value))) in seen:
                    line = key.start_mark.line + 1
                    raise ValueError(f"{path}, line {line}: {key.value!r} is given twice. Keep one.")
                seen.add(name)
            return node

    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.load(file, Loader)
    except OSError as error:
        hint = told_if_shipped(path) if isinstance(error, FileNotFoundError) else ""
        raise ValueError(f"{path} cannot be read: {error.strerror}.{hint}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8 ({error.reason}, byte {error.start}).") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must be a mapping of names to values.")
    return found

"""The entry point of a run: `accelerate launch -m trl_populora.train --config recipes/tiny/4t4s.yaml`.

Reads a recipe, resolves the base model, warms the members up, trains, and leaves adapters, plots and a summary behind.
Mistakes in a recipe end in one sentence and exit code 2. How anything is trained is decided in `training`.
"""

import difflib
import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import get_args, get_type_hints

from .run_files.checkpoint import find_checkpoint
from .run_files.files import write_file, write_json
from .run_files.layout import PLOTS_FOLDER, POPULATION_FILE, RUN_FILE, left_by_a_run
from .settings import conform, documented


@documented
@dataclass
class RunArguments:
    """Settings of a run that are not the trainer's.

    Args:
        model_name_or_path (`str`):
            Base model: a Hub id, a folder, or `"tiny"`.
        dataset_name (`str`, *optional*):
            Prompts to train the students on, with `num_teachers=0`: a Hub id, a file or a saved dataset.
        dataset_config (`str`, *optional*):
            Configuration of a Hub dataset.
        dataset_split (`str`, *optional*, defaults to `"train"`):
            Split of it.
        reward_funcs (`list[str]`, *optional*):
            Reward functions: `module.function`, or names from `trl.rewards`. In self-play, added to the round's own.
        sampler (`str`, *optional*):
            Who draws completions, in place of `use_vllm`: `module:Name` of a class or function (docs/samplers.md).
        sampler_kwargs (`dict`, *optional*):
            Further arguments of it.
        warm_start_steps (`int`, *optional*, defaults to `0`):
            Supervised steps before self-play, on seed tasks in the wanted formats. 0 starts from fresh adapters. Not
            with `beta > 0`, whose reference is the base without them.
        warm_start_rows (`int`, *optional*, defaults to `8`):
            Rows of a warm start step per role.
        warm_start_learning_rate (`float`, *optional*, defaults to `1e-3`):
            Peak learning rate of the warm start.
        plots (`bool`, *optional*, defaults to `True`):
            Save plots at the end, where matplotlib is installed.
        table_every (`int`, *optional*, defaults to `1`):
            Off a terminal, write each member's row every so many rounds; a line a round is written in any case.
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
    plots: bool = True
    table_every: int = 1

    def __post_init__(self):
        conform(self, own={f.name for f in fields(self)})
        if not self.model_name_or_path:
            raise ValueError("model_name_or_path is not set: name a Hub id, a folder or 'tiny' in the recipe.")
        for name in ("warm_start_rows", "table_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.warm_start_steps < 0:
            raise ValueError(f"warm_start_steps={self.warm_start_steps} must not be negative.")
        if self.warm_start_learning_rate <= 0:
            raise ValueError(f"warm_start_learning_rate={self.warm_start_learning_rate} must be positive.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a recipe; returns the exit code, 2 for a mistake that the user can mend."""
    wait_politely()
    try:
        run, args = parse(sys.argv[1:] if argv is None else list(argv))
        checkpoint = prepare_output(args)
        view, trainer = build(run, args)
        trainer.check_checkpoint(checkpoint)
    except ValueError as error:
        return complain(error, 2)
    try:
        with view:
            if run.warm_start_steps and checkpoint is None:
                warm_up(run, args, trainer, view)
            trainer.train(resume_from_checkpoint=checkpoint)
    except KeyboardInterrupt:
        view.note("Stopped. With resume_from_checkpoint: auto the run goes on from its newest checkpoint, if any.")
        return 130
    try:
        finish(run, args, trainer, view)
    except OSError as error:
        kept = find_checkpoint("auto", args.output_dir)
        where = f"The newest checkpoint, {kept}, holds them as they were then." if kept else "There is no checkpoint."
        return complain(
            f"training ended, but the adapters could not be saved to {args.output_dir}: {error}. {where}", 1
        )
    return 0


def complain(problem: object, code: int) -> int:
    """Says what is wrong, once for all ranks; returns the exit code."""
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"trl_populora: {problem}\n")
    return code


# Before training ---------------------------------------------------------------------------------------------------


def parse(argv: list[str]):
    """Recipe and command line to (`RunArguments`, `PopulationSelfPlayConfig`); the command line wins.

    Raises:
        ValueError: For anything that cannot be used, in one sentence.
    """
    for i, argument in enumerate(argv):
        if argument.startswith("--config="):
            argv[i : i + 1] = argument.split("=", 1)
    recipe = read_recipe(argv) if "--config" in argv else {}  # before the imports below, which take their time

    from trl import TrlParser

    from .training import PopulationSelfPlayConfig

    class Parser(TrlParser):
        def error(self, message):  # argparse would print four hundred options first
            raise ValueError(f"{message[:1].upper()}{message[1:]}.")

    hush()
    check_recipe(recipe, (RunArguments, PopulationSelfPlayConfig))
    parser = Parser((RunArguments, PopulationSelfPlayConfig))
    run, args, unknown = parser.parse_args_and_config(argv, return_remaining_strings=True)
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        raise ValueError(f"Unknown option {unknown[0]!r}{_closest(unknown[0].split('=')[0], known)}")
    return run, args


def read_recipe(argv: list[str]) -> Mapping:
    """The mapping in the file that follows `--config`."""
    import yaml

    position = argv.index("--config") + 1
    if position == len(argv):
        raise ValueError("--config needs the path of a recipe.")
    path = argv[position]
    try:
        with open(path, encoding="utf-8") as file:
            recipe = yaml.safe_load(file)
    except OSError as error:
        raise ValueError(f"The recipe {path} cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ValueError(f"The recipe {path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(recipe, dict):
        raise ValueError(f"The recipe {path} must be a mapping of settings to values.")
    return recipe


def check_recipe(recipe: Mapping, dataclasses: Sequence[type]) -> None:
    """Refuse keys that no setting has, and values that no command line could give.

    Raises:
        ValueError: Naming the key, and the closest setting.
    """
    hints = {name: hint for cls in dataclasses for name, hint in get_type_hints(cls).items()}
    known = {f.name for cls in dataclasses for f in fields(cls) if f.init} | {"env"}
    for key, value in recipe.items():
        if key not in known:
            raise ValueError(f"Unknown setting {key!r} in the recipe{_closest(str(key), known)}")
        kinds = set(get_args(hints.get(key)) or (hints.get(key),))
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if kinds - {NoneType} == {int} and not _whole(value, optional=NoneType in kinds):
            raise ValueError(f"{key}={value!r} in the recipe must be a whole number.")
        if value is None and key in hints and NoneType not in kinds:
            raise ValueError(f"{key} is empty in the recipe. Give a value, or leave it out for the default.")
        if number and kinds <= {str, NoneType}:
            raise ValueError(f"{key}={value!r} in the recipe must be text: put it in quotes.")


def prepare_output(args) -> str | None:
    """Make the output folder, and find the checkpoint to resume from, if any.

    Returns:
        `str` or `None`: `resume_from_checkpoint`, with `auto` turned into the newest whole checkpoint, `None` if there
        is none.

    Raises:
        ValueError: If the folder cannot be written or holds another run, or the checkpoint does not exist. With
            `auto`, a run that was stopped before its first checkpoint is started again; a finished one is not.
    """
    folder, wanted = args.output_dir, args.resume_from_checkpoint
    try:
        probe = os.path.join(folder, f".writable-{os.getpid()}")
        write_file(probe, b"")
        os.remove(probe)
    except OSError as error:
        raise ValueError(f"output_dir={folder!r} cannot be written: {error.strerror}. Choose another.") from None
    auto = wanted in ("auto", "true", "True", True)
    if found := find_checkpoint("auto" if auto else wanted or None, folder):
        return found
    used = left_by_a_run(folder)
    finished = os.path.join(folder, POPULATION_FILE) in used
    if used and not args.overwrite_output_dir and (finished or not auto):
        raise ValueError(
            f"output_dir={folder!r} holds a {'finished ' if finished else ''}run already. "
            f"{'Set' if auto else 'Set resume_from_checkpoint: auto to go on with it,'} overwrite_output_dir: true to "
            "start afresh, or choose another folder."
        )
    if os.environ.get("RANK", "0") == "0":
        for path in used:
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    return None


def build(run: RunArguments, args):
    """The terminal view and the trainer, ready to train."""
    from transformers import PrinterCallback, ProgressCallback

    from .integrations.base_models import resolve_base
    from .integrations.user_data import load_prompts, load_rewards, load_sampler
    from .reporting import LiveView
    from .training import PopulationSelfPlayTrainer

    if run.warm_start_steps and args.num_teachers == 0:
        raise ValueError("warm_start_steps needs self-play: its rows are proposals and answers. Set it to 0.")
    if run.warm_start_steps and args.beta:
        raise ValueError(
            f"beta={args.beta} with warm_start_steps={run.warm_start_steps}: the penalty pulls towards the base as it "
            "was before the warm start, and undoes it. Set beta to 0.0, or warm_start_steps to 0."
        )
    if run.sampler_kwargs and not run.sampler:
        raise ValueError(f"sampler_kwargs={run.sampler_kwargs} needs a sampler: name it, or leave both out.")
    prompts = None
    if run.dataset_name is not None:
        prompts = load_prompts(run.dataset_name, config=run.dataset_config, split=run.dataset_split)
    view = LiveView(rounds=args.rounds if args.max_steps > 0 else None, table_every=run.table_every)
    base = resolve_base(run.model_name_or_path)
    args.disable_tqdm = True
    trainer = PopulationSelfPlayTrainer(
        base,
        load_rewards(run.reward_funcs or []),
        args,
        train_dataset=prompts,
        on_round=view.on_round,
        sampler=load_sampler(run.sampler, run.sampler_kwargs) if run.sampler else None,
    )
    trainer.base_model_name = run.model_name_or_path
    for callback in (PrinterCallback, ProgressCallback):  # the view says it better
        trainer.remove_callback(callback)
    if trainer.accelerator.is_main_process:
        write_run_file(run, args, trainer)
    view.note(
        f"{run.model_name_or_path}: {len(trainer.population)} members "
        f"({', '.join(trainer.population)}), {f'{args.rounds} rounds' if args.max_steps > 0 else 'rounds'} of "
        f"{args.completions_per_round} completions"
        + (f", {args.rows_per_round} of them to learn from" if args.balance_rows else "")
    )
    return view, trainer


def wait_politely() -> None:
    """Let idle threads of PyTorch's CPU kernels sleep instead of spin; to be called before torch is imported.

    Spinning threads starve the ones they wait for when the machine has other work: on two cores with one of them busy,
    a generation that takes 8 seconds took 190.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def hush() -> None:
    """Hold back other libraries' progress bars, and their notes on renamed settings that a user cannot act on."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*deprecated and will be removed in v6.*", category=FutureWarning)


def warm_up(run: RunArguments, args, trainer, view) -> None:
    """Supervised warm start of all members on seed tasks."""
    from accelerate.utils import broadcast

    from .integrations.lightning import warm_start

    warm_start(
        trainer.population,
        trainer.processing_class,
        trainer.source.task_types,
        families=args.seed_families,
        steps=run.warm_start_steps,
        rows_per_role=run.warm_start_rows,
        learning_rate=run.warm_start_learning_rate,
        template=args.prompt_template,
        seed=args.seed,
        on_step=lambda step, loss: view.warm_start(step, run.warm_start_steps, loss),
    )
    for name in trainer.population:  # every rank warmed up by itself; rounding may differ between devices
        for parameter in trainer.population.parameters(name):
            parameter.data.copy_(broadcast(parameter.data))


# After training ----------------------------------------------------------------------------------------------------


def finish(run: RunArguments, args, trainer, view) -> None:
    """Save the adapters, the plots and the model card, and say what to do next."""
    from .reporting import read_history, run_summary, save_plots

    trainer.save_model()
    trainer.create_model_card()
    if trainer.accelerator.is_main_process:
        history = read_history(args.output_dir)
        if run.plots:
            try:
                save_plots(history, os.path.join(args.output_dir, PLOTS_FOLDER))
            except ValueError as error:
                view.note(f"No plots: {error}.")
        view.note(run_summary(args.output_dir, history, base=run.model_name_or_path))
    if args.push_to_hub:
        trainer.push_to_hub()
    trainer.close()
    trainer.accelerator.end_training()


def write_run_file(run: RunArguments, args, trainer) -> None:
    """Leave `run.json` behind: what the commands `play`, `evaluate` and `report` need to know about the run."""
    from .reporting.model_card import versions

    data = {
        "model": run.model_name_or_path,
        "settings": args.settings(),
        "versions": versions(),
        "isolation": trainer.source.executor.isolation if args.num_teachers else None,
    }
    write_json(os.path.join(args.output_dir, RUN_FILE), data)


def _whole(value: object, *, optional: bool) -> bool:
    if value is None or isinstance(value, bool):
        return value is None and optional
    return isinstance(value, int) or (isinstance(value, str) and value.lstrip("+-").isdigit())


def _closest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


if __name__ == "__main__":
    sys.exit(main())

"""The entry point of a run: `accelerate launch -m trl_populora.train --config recipes/tiny/4t4s.yaml`.

Reads a recipe, resolves the base model, warms the members up, trains, and leaves adapters, plots and a summary behind.
Mistakes in a recipe end in one sentence and exit code 2, and leave no folder. How anything is trained is decided in
`training`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from .command import FAILURE, STOPPED, WRONG_CALL, populora, print_error
from .executor import SandboxError
from .extras import require
from .output import is_first_rank, steady_output
from .quiet import filter_messages
from .recipe import RunArguments, parse
from .run_files.checkpoint import WRITE_ERRORS, find_checkpoint, newest_checkpoint
from .run_files.files import alone, check_writable, gone_if_unused, is_taken
from .run_files.layout import (
    EVALUATION_FOLDER,
    PLOTS_FOLDER,
    POPULATION_FILE,
    begun_by_a_run,
    holds_a_run,
    left_by_a_run,
)
from .run_files.run import hub_id
from .settings import as_mapping


if TYPE_CHECKING:
    from .evaluation import Exam
    from .generation import Sampler, SamplerFactory
    from .reporting import LiveView
    from .training import PopulationSelfPlayConfig, PopulationSelfPlayTrainer


TOO_EARLY = "stopped before the first round; nothing was saved"
NOT_BEGUN = "Stopped before the first round. Nothing was saved or removed: repeat the command."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a recipe; returns the exit code, 2 for a mistake that the user can mend."""
    with steady_output():
        return run_recipe(argv)


def run_recipe(argv: Sequence[str] | None) -> int:
    """[`main`], with errors of the output."""
    wait_politely()
    filter_messages()
    try:
        run, args = parse(sys.argv[1:] if argv is None else list(argv), base_here=True)
    except ValueError as error:  # each machine has its own files
        return print_error(error, WRONG_CALL, every_rank=os.environ.get("LOCAL_RANK") == "0")
    except KeyboardInterrupt:
        return print_error(TOO_EARLY, STOPPED)
    problem: ValueError | None = None
    folder = args.output_dir
    try:
        with gone_if_unused(folder, lambda: holds_a_run(folder) or is_taken(folder)), ExitStack() as held:
            if is_first_rank():  # which also takes the folder away again if the run does not start
                try:
                    check_writable(folder, option="output_dir")
                    held.enter_context(alone(folder))
                except ValueError as error:
                    if os.environ.get("WORLD_SIZE", "1") == "1":
                        return print_error(error, WRONG_CALL)
                    problem = error  # which the others wait for
            return start(run, args, problem)
    except KeyboardInterrupt:  # a second one, before the first was reported
        return print_error("stopped", STOPPED)


def start(run: RunArguments, args: PopulationSelfPlayConfig, problem: ValueError | None = None) -> int:
    """Run what a recipe says, unless this process has a problem with the folder; returns the exit code."""
    try:
        from .evaluation.evaluating import check_length
        from .training.ranks import decided_by_first
        from .training.trackers import TrackerError

        checkpoint = decided_by_first(lambda: prepare_output(args, problem))
        exams = final_exams(run, args)
        view, trainer = build(run, args)
        for exam in exams:
            check_length(exam, trainer.source.sampler)
        trainer.check_checkpoint(checkpoint)
        trainer.check_sandbox()
    except (ValueError, OSError, ImportError) as error:
        own = not getattr(error, "everyones", False)  # as `decided_by_first` says
        return print_error(" ".join(str(error).split()), WRONG_CALL, every_rank=own)
    except SandboxError as error:  # each machine has its own
        return print_error(error, WRONG_CALL, every_rank=True)
    except KeyboardInterrupt:
        return print_error(TOO_EARLY, STOPPED)
    try:
        with view:
            if run.warm_start_steps and checkpoint is None:
                try:
                    warm_up(run, args, trainer, view)
                except ValueError as error:
                    return print_error(error, FAILURE, every_rank=True)
            trainer.train(resume_from_checkpoint=checkpoint or ("auto" if wants_newest(args) else None))
    except TrackerError as error:  # before the first round
        return print_error(" ".join(str(error).split()), WRONG_CALL)
    except KeyboardInterrupt:
        view.note(told_when_stopped(args, checkpoint) if trainer.folder.begun else NOT_BEGUN)
        return STOPPED
    try:
        if trainer.stopping.stopped:  # by SIGTERM; the trainer has logged how to continue
            trainer.close()
            trainer.accelerator.end_training()
            return 0 if trainer.stopping.saved else FAILURE
        try:
            trainer.save_model(_internal_call=True)  # pushed once, by `finish`
        except WRITE_ERRORS as error:
            return print_error(told_if_not_saved(args, error), FAILURE)
        return finish(run, args, trainer, view, exams)
    except KeyboardInterrupt:
        saved = os.path.isfile(os.path.join(args.output_dir, POPULATION_FILE))  # removed when training began
        view.note(
            f"Stopped. {told_after_training(run, args, trainer)}" if saved else told_when_stopped(args, checkpoint)
        )
        return STOPPED


# Before training ---------------------------------------------------------------------------------------------------


def prepare_output(args: PopulationSelfPlayConfig, problem: ValueError | None = None) -> str | None:
    """Finds the checkpoint to resume from, if any. Nothing is removed yet. A problem that was met before is raised.

    Returns:
        `str` or `None`: `resume_from_checkpoint`, with `auto` turned into the newest whole checkpoint, `None` if there
        is none.

    Raises:
        ValueError: If the folder holds another run, or the checkpoint does not exist. With `auto`, a run that was
            stopped before its first checkpoint is started again; a finished one is not, even with
            `overwrite_output_dir`.
    """
    if problem is not None:
        raise problem
    folder, wanted = args.output_dir, args.resume_from_checkpoint
    auto = wants_newest(args)
    if found := find_checkpoint("auto" if auto else wanted or None, folder):
        return found
    used = left_by_a_run(folder)
    if used and not begun_by_a_run(folder):
        raise ValueError(
            f"output_dir={folder!r} holds {', '.join(sorted(map(os.path.basename, used)))}, and no run has written "
            f"into it: a new run would replace what is there. Choose another folder."
        )
    finished = os.path.join(folder, POPULATION_FILE) in used
    if used and (finished if auto else not args.overwrite_output_dir):
        again = (
            "leave resume_from_checkpoint out, and set" if auto else "set resume_from_checkpoint: auto to go on, or"
        )
        raise ValueError(
            f"output_dir={folder!r} already holds a {'finished ' if finished else ''}run"
            f"{' without a checkpoint' if auto else ''}: {again} overwrite_output_dir: true to start from the "
            "beginning, or choose another folder."
        )
    return None


def wants_newest(args: PopulationSelfPlayConfig) -> bool:
    """Whether to resume from the newest checkpoint, whichever it is."""
    return args.resume_from_checkpoint in ("auto", "true", "True", True)


def named_parts(
    run: RunArguments, args: PopulationSelfPlayConfig
) -> tuple[list[Any], type[Sampler] | SamplerFactory | None]:
    """The reward functions and the sampler that the recipe names. Nothing is downloaded.

    Raises:
        ValueError: If there is no such function or sampler, or settings of the recipe contradict each other.
    """
    from .integrations.user_data import load_rewards, load_sampler
    from .training.packages import check_packages

    if run.dataset_name is not None and args.num_teachers:
        raise ValueError(
            f"dataset_name={run.dataset_name!r} with num_teachers={args.num_teachers}: in self-play, teachers write "
            "the tasks. Set num_teachers to 0 to train the students on the dataset, or leave dataset_name out."
        )
    if run.warm_start_steps and args.num_teachers == 0:
        raise ValueError("warm_start_steps needs self-play, because its rows are proposals and answers. Set it to 0.")
    if run.warm_start_steps and args.beta:
        raise ValueError(
            f"beta={args.beta} with warm_start_steps={run.warm_start_steps}: the penalty pulls members towards the "
            f"base without the warm start, and undoes it. Set beta to 0.0, or warm_start_steps to 0."
        )
    if run.warm_start_steps and args.initial_adapters:
        raise ValueError(
            f"initial_adapters with warm_start_steps={run.warm_start_steps}: after the warm start, the members of a "
            f"role are copies of its first one, so the adapters of the others are lost. Set warm_start_steps to 0, or "
            f"leave initial_adapters out."
        )
    if run.sampler_kwargs and not run.sampler:
        raise ValueError(f"sampler_kwargs={run.sampler_kwargs} needs a sampler: name it, or leave both out.")
    if run.warm_start_steps:
        require("lightning", user=f"warm_start_steps={run.warm_start_steps}")
    rewards = load_rewards(run.reward_funcs or [])
    check_packages(args, rewards)
    return rewards, load_sampler(run.sampler, as_mapping(run.sampler_kwargs)) if run.sampler else None


def build(run: RunArguments, args: PopulationSelfPlayConfig) -> tuple[LiveView, PopulationSelfPlayTrainer]:
    """The terminal view and the trainer, ready to train."""
    from .integrations.base_models import resolve_base
    from .integrations.user_data import load_prompts
    from .reporting import LiveView
    from .reporting.tables import counted
    from .training import PopulationSelfPlayTrainer

    rewards, sampler = named_parts(run, args)
    prompts = None
    if run.dataset_name is not None:
        prompts = load_prompts(run.dataset_name, config=run.dataset_config, split=run.dataset_split)
    view = LiveView(rounds=args.rounds if args.max_steps > 0 else None, table_every=run.table_every)
    base = resolve_base(run.model_name_or_path, tell=view.note)
    args.disable_tqdm = True
    trainer = PopulationSelfPlayTrainer(
        base,
        rewards,
        args,
        train_dataset=prompts,
        sampler=sampler,
    )
    view.attach(trainer)
    trainer.base_model_name, trainer.dataset_name = run.model_name_or_path, run.dataset_name
    if hub_id(run.model_name_or_path):
        trainer.population.name_base(run.model_name_or_path)
    if run.warm_start_steps:
        names = ("warm_start_steps", "warm_start_rows", "warm_start_learning_rate")
        trainer.warm_start = {name.removeprefix("warm_start_"): getattr(run, name) for name in names}
    rounds = counted(args.rounds, "round") if args.max_steps > 0 else "rounds"
    view.note(
        f"{run.model_name_or_path}: {counted(len(trainer.population), 'member')} "
        f"({', '.join(trainer.population)}), {rounds} of "
        f"{args.completions_per_round} completions"
        + (f", {args.rows_per_round} of which are learned from" if args.balance_rows else "")
    )
    return view, trainer


def wait_politely() -> None:
    """Let idle threads of PyTorch's CPU kernels sleep instead of spin; to be called before torch is imported.

    Spinning threads starve the ones they wait for when the machine has other work: on two cores with one of them busy,
    a generation that takes 8 seconds took 190.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def warm_up(
    run: RunArguments, args: PopulationSelfPlayConfig, trainer: PopulationSelfPlayTrainer, view: LiveView
) -> None:
    """Supervised warm start of all members on seed tasks."""
    from .integrations.lightning import warm_start

    view.warm_start(0, run.warm_start_steps)
    model = trainer.population.model
    training = model.training
    if args.gradient_checkpointing:  # as in the run, which may not fit without it
        kwargs = args.gradient_checkpointing_kwargs or {"use_reentrant": False}
        trainer.population.base_model.gradient_checkpointing_enable(kwargs)
        model.train()
    try:
        warm_start(
            trainer.population,
            trainer.source.sampler.tokenizer,
            trainer.source.task_types,
            families=args.seed_families,
            steps=run.warm_start_steps,
            rows_per_role=run.warm_start_rows,
            learning_rate=run.warm_start_learning_rate,
            template=args.prompt_template,
            chat_template_kwargs=as_mapping(args.chat_template_kwargs),
            seed=args.seed,
            reserved=trainer.source.buffer.reserved,
            on_step=lambda step, losses: view.warm_start(step, run.warm_start_steps, losses),
        )
    finally:
        model.train(training)
    for name in trainer.population:  # every rank warmed up by itself; rounding may differ between devices
        trainer.updates.spread(name)


def final_exams(run: RunArguments, args: PopulationSelfPlayConfig) -> list[Exam]:
    """The exams after training. They are made before training, so that a mistake is found before the run.

    Their tasks are reserved: the run does not learn from them.

    Raises:
        ValueError: If an exam is unknown or has no data, or there are several processes.
    """
    if not run.final_exams:
        return []
    from .evaluation import make_exams
    from .training.first_tasks import types_in_play

    if args.world_size > 1:
        raise ValueError(
            "final_exams work only with a single process. Leave them out, and use `populora evaluate` after the run."
        )
    types = types_in_play(args, None) if args.num_teachers else {}
    try:
        exams = make_exams(run.final_exams, types, data=args.probes.data, limit=run.final_exams_limit)
    except ValueError as error:
        raise ValueError(f"final_exams: {error}") from None
    args.reserved_exams = list(dict.fromkeys((*(args.reserved_exams or ()), *run.final_exams)))
    return exams


def told_when_stopped(args: PopulationSelfPlayConfig, resumed: str | None = None) -> str:
    """What a user who has stopped a run can do next. `resumed` is the checkpoint that the run started from."""
    auto, newest = wants_newest(args), newest_checkpoint(args.output_dir)
    if newest:
        option = "" if auto else " with `--resume_from_checkpoint auto`"
        return f"Stopped. To go on from {newest}, repeat the command{option}."
    refused = left_by_a_run(args.output_dir) and not args.overwrite_output_dir
    if resumed:  # in another folder
        option = " with `--overwrite_output_dir true`" if refused else ""
        return f"Stopped. There is no new checkpoint. To go on from {resumed} again, repeat the command{option}."
    option = " with `--resume_from_checkpoint auto`" if refused and not auto else ""
    often = "To get one earlier, set a smaller `save_steps`."
    if args.save_strategy != "steps":
        often = "To get checkpoints, set `save_strategy: steps` and `save_steps`."
    return (
        f"Stopped. There is no checkpoint yet, so the run can only start from the beginning: repeat the command"
        f"{option}. {often}"
    )


# After training ----------------------------------------------------------------------------------------------------


def finish(
    run: RunArguments,
    args: PopulationSelfPlayConfig,
    trainer: PopulationSelfPlayTrainer,
    view: LiveView,
    exams: Sequence[Exam] = (),
) -> int:
    """After the adapters are saved: takes final exams, writes plots, summary and card, and pushes. Returns 1 if
    an exam failed, or something could not be written or pushed."""
    from .hub import HubError

    problems, over = [], "training has ended and is saved, but"
    if exams:
        again = f"To take them again: {exams_command(run, args)}"
        try:
            if left := take_final_exams(exams, args, trainer):
                problems.append(f"{over} these final exams failed: {', '.join(left)}. {again}")
        except Exception as error:  # as of an engine that has died
            told = " ".join(f"{type(error).__name__}: {error}".split())
            problems.append(f"{over} the final exams ended early ({told}). {again}")
    try:
        write_results(run, args, trainer, view)
        if args.push_to_hub and (address := trainer.push_to_hub()):
            view.note(f"Pushed: {address}")
    except HubError as error:
        problems.append(f"{over} the push failed: {error}")
    except OSError as error:
        problems.append(f"not all results could be written: {error}. {told_after_training(run, args, trainer)}")
    trainer.close()
    trainer.accelerator.end_training()
    for problem in problems:
        print_error(problem, FAILURE)
    return FAILURE if problems else 0


def write_results(
    run: RunArguments, args: PopulationSelfPlayConfig, trainer: PopulationSelfPlayTrainer, view: LiveView
) -> None:
    """Plots, summary and card of a run."""
    from .reporting import read_history, read_probes, run_summary, save_plots

    if trainer.accelerator.is_main_process and os.path.isfile(trainer.folder.history):
        history, probes = read_history(args.output_dir), read_probes(args.output_dir)
        if run.plots:
            try:
                save_plots(history, os.path.join(args.output_dir, PLOTS_FOLDER), probes=probes)
            except ValueError as error:
                view.note(f"No plots: {error}")
        view.note(run_summary(args.output_dir, history, base=run.model_name_or_path, probes=probes))
    trainer.create_model_card()


def told_if_not_saved(args: PopulationSelfPlayConfig, error: Exception) -> str:
    """What to say if the last adapters cannot be written."""
    kept = newest_checkpoint(args.output_dir)
    where = f"The newest checkpoint, {kept}, holds the adapters of that step." if kept else "There is no checkpoint."
    return f"training ended, but the adapters could not be saved to {args.output_dir}: {error}. {where}"


def told_after_training(run: RunArguments, args: PopulationSelfPlayConfig, trainer: PopulationSelfPlayTrainer) -> str:
    """What is saved and how to do the rest, if a run ends after its last round and before its results."""
    folder, commands = args.output_dir, []
    if run.final_exams:
        commands.append(exams_command(run, args))
    if run.plots:
        commands.append(f"`{populora()} {shlex.join(['report', folder])}`")
    if args.push_to_hub:
        options = {"--to": trainer.hub_model_id, "--revision": args.hub_revision}
        words = ["push", folder, *(word for name, value in options.items() if value for word in (name, value))]
        words += ["--private"] * bool(args.hub_private_repo)
        commands.append(f"`{populora()} {shlex.join(words)}`")
    rest = f" To do what is missing: {', '.join(commands)}." if commands else ""
    return f"Training is over, and the adapters are saved in {folder}.{rest}"


def exams_command(run: RunArguments, args: PopulationSelfPlayConfig) -> str:
    """The command that takes the final exams, or continues them."""
    options = {"--limit": run.final_exams_limit, "--data": args.probes.data}
    words = ["evaluate", args.output_dir, "--exams", *(run.final_exams or ())]
    words += [str(word) for name, value in options.items() if value for word in (name, value)]
    words += ["--accept-unsafe"] * bool(as_mapping(args.executor_kwargs).get("accept_unsafe"))
    return f"`{populora()} {shlex.join(words)}`"


def take_final_exams(
    exams: Sequence[Exam], args: PopulationSelfPlayConfig, trainer: PopulationSelfPlayTrainer
) -> list[str]:
    """Evaluates the members that solve tasks, and the base, with greedy decoding and the run's own sampler.

    The results go to the run's folder, and from there into its card. Returns the names of exams that failed.
    """
    from .evaluation.evaluating import Decoding, base_fingerprint, take_exam
    from .evaluation.records import save_evaluation
    from .generation import TransformersSampler
    from .reporting.evaluation_view import EvaluationView
    from .reporting.model_card import versions
    from .run_files.run import BASE, adapter_fingerprint

    population, sampler, folder = trainer.population, trainer.source.sampler, args.output_dir
    members = [name for name, member in population.items() if member.role != "teacher"]
    weights = {name: adapter_fingerprint(folder, name) for name in members} | {BASE: base_fingerprint(sampler)}
    identity = {"weights": weights, "versions": versions(), "dtype": str(population.base_model.dtype)}
    rows = args.generation_rows if isinstance(sampler, TransformersSampler) else 4 * args.completions_per_round
    place, runs, failed = os.path.join(folder, EVALUATION_FOLDER), [], []
    sampler.sync()
    with EvaluationView() as view:
        view.watch(sampler.progress)
        for exam in exams:
            view.begin(exam.name)
            try:
                runs.append(
                    take_exam(
                        exam,
                        members,
                        sampler,
                        trainer.probes.examiner.run,
                        folder=place,
                        decoding=Decoding(rows_per_call=rows),
                        identity=identity,
                        on_progress=view.progress,
                    )
                )
            except Exception as error:  # the run itself is over and saved, and other exams may go well
                view.note(f"{exam.name}: " + " ".join(f"{type(error).__name__}: {error}".split()))
                failed.append(exam.name)
        about = {"runs": {"": folder}, "base": trainer.base_model_name, "template": sampler.template} | identity
        if runs:
            view.tables(save_evaluation(place, runs, {"": members}, about))
    return failed


if __name__ == "__main__":
    sys.exit(main())

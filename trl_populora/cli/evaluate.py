"""`populora evaluate`: scores members and the base in exams: held-out tasks, public benchmarks, your own.

An interrupted evaluation continues where it stopped. docs/evaluation.md explains the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from ..run_files.layout import EVALUATION_FILE, EVALUATION_FOLDER, JOB_LOG, PARTIAL_SUFFIX
from ..run_files.run import AVERAGE, BASE
from .evaluate_options import (
    averaged,
    check_numbers,
    chosen_exams,
    chosen_members,
    open_runs,
    output_folder,
    read_decoding,
    students,
    vllm_engine,
)
from .opening import add_unsafe_option


if TYPE_CHECKING:
    from ..evaluation import Exam
    from ..evaluation.evaluating import Decoding, ExamRun
    from ..executor import Executor
    from ..generation import Sampler
    from ..generation.engines import Engine
    from ..reporting.evaluation_view import EvaluationView
    from ..run_files.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="*", metavar="RUN", help="output_dir of a run, or a checkpoint in it")
    parser.add_argument(
        "--exams",
        "--benchmarks",
        nargs="+",
        metavar="NAME",
        help="held_out, held_out_easy, tasks:PATH, a benchmark such as gsm8k, or module:Name (default: held_out; runs "
        "on a dataset have none)",
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="use only the first N questions of each exam (default: all)"
    )
    parser.add_argument("--data", metavar="FOLDER", help="folder with the files of benchmarks (default: the Hub)")
    parser.add_argument("--members", nargs="+", metavar="NAME", help="members to evaluate (default: all students)")
    parser.add_argument("--teachers", action="store_true", help="the teachers too")
    parser.add_argument(
        "--average", action="store_true", help="also the average of all students' updates, as one more adapter"
    )
    parser.add_argument("--base", metavar="MODEL", help="base model; the recorded one if unset")
    parser.add_argument("--no-base", action="store_true", help="do not evaluate the base")
    parser.add_argument("--samples", metavar="K", default="1", help="answers per question, or 'auto' (default: 1)")
    parser.add_argument("--temperature", type=float, help="sampling temperature; 0 is greedy decoding (default: 0)")
    parser.add_argument("--seed", type=int, default=0, help="seed of sampling, if the temperature is not 0")
    parser.add_argument(
        "--max-completion-length",
        type=int,
        metavar="N",
        help="maximum tokens of an answer (default: the exam's or the run's)",
    )
    parser.add_argument(
        "--template", choices=("chat", "base", "plain"), help="template of the prompts (default: the run's)"
    )
    parser.add_argument(
        "--style", choices=("full", "compact"), help="style of the prompts of tasks (default: the run's)"
    )
    parser.add_argument("--types", nargs="+", metavar="NAME", help="task types of held-out tasks (default: the run's)")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="dtype of the base (default: bfloat16 on a GPU, float32 on a CPU)",
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="number of answers that are generated at once (default: the run's)"
    )
    parser.add_argument("--use-vllm", action="store_true", help="generate with vLLM in this process")
    parser.add_argument(
        "--vllm-server-base-urls", nargs="+", metavar="URL", help="generate with these running vLLM servers"
    )
    parser.add_argument(
        "--vllm-engine-kwargs", metavar="JSON", help="arguments of vllm.LLM, such as '{\"max_model_len\": 4096}'"
    )
    add_unsafe_option(parser)
    parser.add_argument("--output", metavar="FOLDER", help=f"folder for the results; RUN/{EVALUATION_FOLDER} if unset")


class Stopped(Exception):
    """The evaluation cannot go on. Its answers are kept."""


def run(options: argparse.Namespace) -> int:
    from .opening import labels

    check_numbers(options)
    runs = open_runs(options)
    output = output_folder(options, runs)
    engine = vllm_engine(options, runs[0].revision)
    chosen = [[*chosen_members(one, options), *averaged(one, options)] for one in runs]
    teams = dict(zip(labels(runs), zip(runs, chosen, strict=True), strict=True))
    exams = chosen_exams(options, runs)

    from accelerate.utils.memory import clear_device_cache

    from ..evaluation.evaluating import merged
    from ..evaluation.records import save_evaluation
    from ..generation.engines import EngineError
    from ..reporting.evaluation_view import EvaluationView
    from ..reporting.model_card import versions
    from ..run_files.files import check_writable, gone_if_unused
    from .opening import make_executor

    asked = [(exam, read_decoding(options, runs, exam)) for exam in exams]
    about: dict[str, Any] = {"runs": {name: one.folder for name, (one, _) in teams.items()}, "base": runs[0].base}
    weights, taken = {}, {}
    with (
        gone_if_unused(output, lambda: os.path.isdir(output) and bool(os.listdir(output))),
        EvaluationView() as view,
        make_executor(runs[0], accept_unsafe=options.accept_unsafe) as executor,
    ):
        check_writable(output, option="--output")
        view.note(opening(teams, exams, None if options.no_base else runs[0].base))
        for told in warned(options, runs, exams):
            view.note(told)
        try:
            for label, (one, members) in teams.items():
                with closing(prepare(one, options, runs, engine)) as sampler:
                    sampler.sync()
                    own = fingerprints(one, members, sampler)
                    weights |= {name if name == BASE else player(teams, label, name): own[name] for name in own}
                    about |= {"template": sampler.template, "dtype": str(sampler.population.base_model.dtype)}
                    about |= {"sampler": "vllm"} if engine else {}
                    identity = {key: about[key] for key in ("dtype", "sampler") if key in about}
                    taken[label] = take_exams(
                        asked,
                        members,
                        sampler,
                        executor,
                        view,
                        title=f"{label}: " if len(teams) > 1 else "",
                        folder=output,
                        base=not options.no_base and one is runs[0],
                        identity=identity | {"weights": own, "versions": versions()},
                    )
                del sampler
                # One base at a time: with vLLM, the next engine counts what is free on the card.
                clear_device_cache(garbage_collection=True)
        except (EngineError, Stopped) as error:
            view.note(f"{error} {kept(output)}")
            return 1
        except KeyboardInterrupt:
            view.note(f"Stopped. {kept(output)}")
            return 130
        about |= {"weights": weights, "versions": versions()}
        graded = [exam for exam in exams if all(exam.name in own for own in taken.values())]
        if graded:  # else an earlier record stays
            complete = [
                merged({label: own[exam.name] for label, own in taken.items()}, named=len(teams) > 1)
                for exam in graded
            ]
            view.tables(save_evaluation(output, complete, compared(teams), about))
            view.note(f"\nScores: {os.path.join(output, EVALUATION_FILE)}")
    return 0 if len(graded) == len(exams) else 1


def take_exams(
    asked: Sequence[tuple[Exam, Decoding]],
    members: Sequence[str],
    sampler: Sampler,
    executor: Executor,
    view: EvaluationView,
    *,
    title: str,
    **settings: Any,
) -> dict[str, ExamRun]:
    """Lets the members of a run take the exams; an exam that cannot be graded is told and left out.

    Raises:
        Stopped: If the answers cannot be written, as on a full disk.
    """
    from ..evaluation.evaluating import GradingError, check_length, take_exam
    from ..progress import watched_jobs

    for exam, decoding in asked:
        check_length(exam, sampler, max_completion_length=decoding.max_completion_length)
    view.watch(sampler.progress)
    jobs, taken = watched_jobs(executor, sampler.progress), {}
    for exam, decoding in asked:
        if told := too_long(exam, decoding, sampler):
            view.note(told)
        view.begin(title + exam.name)
        settings |= {"decoding": decoding, "on_progress": view.progress}
        try:
            taken[exam.name] = take_exam(exam, members, sampler, jobs, **settings)
        except GradingError as error:
            view.note(str(error))
        except OSError as error:
            raise Stopped(f"{error}.") from None
    return taken


def kept(output: str) -> str:
    """What an evaluation that ended early has left, in words."""
    there = os.path.isdir(output) and any(name.endswith(PARTIAL_SUFFIX) for name in os.listdir(output))
    if not there:
        return "There are no answers yet."
    return f"The answers so far are in {output}; the same command continues from there."


def fingerprints(one: Run, members: Sequence[str], sampler: Sampler) -> dict[str, str]:
    """Hashes of the weights that answer: of the members, of those that an average is of, and of the base."""
    from ..evaluation.evaluating import base_fingerprint
    from ..run_files.run import adapter_fingerprint

    asked = set(members) - {AVERAGE} | set(students(one) if AVERAGE in members else [])
    own = {name: adapter_fingerprint(one.folder, name) for name in one.members if name in asked}
    return own | {BASE: base_fingerprint(sampler)}


def warned(options: argparse.Namespace, runs: Sequence[Run], exams: Sequence[Exam]) -> Iterator[str]:
    """What to say before the evaluation."""
    from ..run_files.files import is_taken

    first = runs[0]
    if options.output is None and first.record != first.folder and is_taken(first.record):
        yield f"{first.record} is training, and may remove this checkpoint with the results: see --output."
    if options.output is None and os.path.isfile(os.path.join(first.folder, JOB_LOG)):
        yield (
            f"{first.folder} is a run of an experiment, which takes its exams again if other scores replace them: "
            "name a folder for these by --output."
        )
    for exam in exams:
        for tell, whose in [(unused_families, runs), *((shown_in, run) for run in runs)]:
            with suppress(ValueError):  # of a type that is not here, or a family that is no more
                if told := tell(exam, whose):
                    yield told


def unused_families(exam: Exam, runs: Sequence[Run]) -> str | None:
    """What to say of held-out tasks of families that a run did not use, if there are any."""
    from ..evaluation.held_out import LEVELS
    from ..tasks import families_of
    from .opening import make_task_types

    chosen = [(run, families) for run in runs if (families := run.setting("seed_families", None))]
    if not exam.of_tasks or exam.name.partition("[")[0] not in LEVELS or not chosen:
        return None
    tasks = [json.loads(question.reference) for question in exam.questions]
    used = [families_of(make_task_types(run), families) for run, families in chosen]
    families = [(task["type"], task["author"].removeprefix("seed:")) for task in tasks]
    count = max(sum(bool(own.get(type)) and name not in own[type] for type, name in families) for own in used)
    if not count:
        return None
    return (
        f"{exam.name}: {count} of {len(tasks)} questions are of families that are not in the run's seed_families. "
        "Name another exam with --exams."
    )


def shown_in(exam: Exam, run: Run) -> str | None:
    """What to say of questions that a run had among its tasks, if there are any."""
    from ..evaluation.held_out import questions_shown
    from .opening import make_task_types

    if not run.folder or not exam.of_tasks:
        return None
    count = questions_shown(exam, run.folder, make_task_types(run))
    if not count:
        return None
    return (
        f"{exam.name}: tasks of {run.folder} show {count} of {len(exam.questions)} questions with an answer. Its "
        "members may have learned from them, so these scores say little about others."
    )


def prepare(
    one: Run, options: argparse.Namespace, runs: Sequence[Run], engine: Callable[[], Engine] | None = None
) -> Sampler:
    """A sampler over a run's members, or over the base alone, prompted like all runs."""
    from peft import LoraConfig

    from ..evolution import breed
    from ..generation import EngineSampler
    from ..population import Population
    from .opening import load_base, make_sampler, recorded_quantization, shared_setting

    template = shared_setting(runs, "prompt_template", "--template", given=options.template)
    first, *others = runs
    for other in others:
        texts = [one.chat_template for one in (first, other)]
        if template == "chat" and all(texts) and len(set(texts)) > 1:
            raise ValueError(
                f"the chat templates saved in {first.folder} and {other.folder} differ. Evaluate the runs separately."
            )
        if template == "chat" and other.chat_template_kwargs != first.chat_template_kwargs:
            raise ValueError(
                f"chat_template_kwargs is {first.chat_template_kwargs} in {first.folder} and "
                f"{other.chat_template_kwargs} in {other.folder}. Evaluate the runs separately."
            )
    how = {"revision": one.revision, "quantization": recorded_quantization(one)}
    model, tokenizer = load_base(one.base, dtype=options.dtype, **how)
    tokenizer.chat_template = one.chat_template or tokenizer.chat_template
    if template == "chat" and tokenizer.chat_template is None:
        raise ValueError(f"the tokenizer of {one.base} has no chat template: use --template base.")
    if one.members:
        guests = averaged(one, options)
        population = Population.from_pretrained(one.folder, model, guests=guests)
        for guest in guests:
            population.admit(guest, breed("average", [population.factors(name) for name in students(one)], seed=0))
    else:  # a sampler needs a population; nobody asks these two
        lora = LoraConfig(r=1, target_modules="all-linear", lora_dropout=0.0)
        population = Population(model, lora, num_teachers=1, num_students=1)
    if engine is None:
        rows = options.batch_size or one.setting("generation_rows", 64)
        return make_sampler(one, population, tokenizer, temperature=0.0, template=template, batch_size=rows)
    return EngineSampler(
        population,
        tokenizer,
        engine=engine(),
        max_completion_length=one.setting("max_completion_length", 512),
        temperature=0.0,
        template=template,
        chat_template_kwargs=one.chat_template_kwargs,
    )


def too_long(exam: Exam, decoding: Decoding, sampler: Sampler) -> str | None:
    """What to say of questions whose answers may pass the length that the base was made for, if there are any."""
    places = getattr(sampler.population.base_model.config, "max_position_embeddings", None)
    answer = decoding.max_completion_length or sampler.max_completion_length
    lengths = [sampler.count_tokens(question.prompt) + answer for question in exam.questions]
    count = sum(length > places for length in lengths) if places else 0
    if not count:
        return None
    return (
        f"{exam.name}: {count} prompts and answers may have up to {max(lengths)} tokens, and the base "
        f"supports {places}: later tokens may be worse. Lower the limit with --max-completion-length."
    )


def compared(teams: Mapping[str, tuple[Run, list[str]]]) -> dict[str, list[str]]:
    """Players of each run for mean, best and weakest: its students, or all evaluated members if it has none."""
    named = {}
    for label, (_, members) in teams.items():
        own = [name for name in members if name != AVERAGE and not name.startswith("teacher")]
        own = own or [name for name in members if name != AVERAGE]
        if own:
            named[label if len(teams) > 1 else ""] = [player(teams, label, name) for name in own]
    return named


def player(teams: Mapping[str, object], label: str, member: str) -> str:
    """Name of a member in the results: with its run's, where there are several."""
    return f"{label}/{member}" if len(teams) > 1 else member


def opening(teams: Mapping[str, tuple[Run, list[str]]], exams: Sequence[Exam], base: str | None) -> str:
    """What will be done, in a line."""
    from ..reporting.tables import counted

    who = [f"{counted(len(members), 'member')} of {one.folder}" for one, members in teams.values() if members]
    asked = ", ".join(f"{exam.name} ({len(exam.questions)} questions, version {exam.version})" for exam in exams)
    return f"{', '.join([*who, *([f'the base {base}'] if base else [])])}: {asked}"

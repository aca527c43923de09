"""Does a crowd learn more than one teacher and one student? Runs of several sizes, with and without evolution.

    python benchmarks/crowd.py [--config recipes/tiny/4t4s.yaml] [--seeds 0 1 2] [--json FILE]

Compute is matched per member: every teacher writes and every student attempts equally many rows a round in every
setting. After training all students are asked the same held-out tasks, greedily. A crowd of four also has four chances
to hold a good student; several runs of 1T1S are therefore also read as one crowd of members that never meet.
`best` is the student that does best on the held-out tasks, `chosen` the one of highest fitness in its own run (in a
crowd of strangers nobody compares them, so there is none). Runs in FILE are kept, and not played again.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence

from trl_populora.evaluation import Exam, answering
from trl_populora.evaluation.held_out import HELD_OUT_SEED, task_exam
from trl_populora.evaluation.results import ExamResult
from trl_populora.quiet import filter_messages
from trl_populora.recipe import parse
from trl_populora.tasks import families_of


SETTINGS = {  # teachers and students, rounds between replacements
    "1T1S": (1, 0),
    "2T2S": (2, 0),
    "2T2S evolving": (2, 10),
    "4T4S": (4, 0),
    "4T4S evolving": (4, 10),
}


def play(config: str, size: int, interval: int, *, seed: int, rounds: int, tasks: int, folder: str) -> dict:
    """One run: held-out pass@1 of the base and of every student, and what it took."""
    from transformers import PrinterCallback

    from trl_populora.integrations.base_models import resolve_base
    from trl_populora.training import PopulationSelfPlayTrainer

    forced = {
        "num_teachers": size,
        "num_students": size,
        "per_device_train_batch_size": 60,
        "evolution_interval": interval,
        "max_steps": rounds,
        "save_strategy": "no",
        "output_dir": folder,
        "overwrite_output_dir": True,
        "seed": seed,
        "disable_tqdm": True,
        "executor_kwargs": '{"workers": 1}',
    }
    run, args = parse(["--config", config, *(text for k, v in forced.items() for text in (f"--{k}", str(v)))])
    os.makedirs(folder, exist_ok=True)
    start, rows = time.process_time(), []
    trainer = PopulationSelfPlayTrainer(resolve_base(run.model_name_or_path), args=args)
    trainer.remove_callback(PrinterCallback)
    trainer.on_round = lambda summary: rows.append(len(trainer.source.played.rows))
    exam = held_out(trainer, args, tasks)
    trainer.train()
    result = ask(trainer, args, exam)
    students = trainer.population.names("student")
    return {
        "base": result.accuracy("base"),
        "students": {name: result.accuracy(name) for name in students},
        "by_type": {name: {kind: result.accuracy(name, kind) for kind in result.groups} for name in students},
        "fitness": {name: trainer.ratings.fitness(name) for name in students},
        "rows_per_student": sum(rows) * args.num_generations // (1 + args.num_generations) // size,
        "replacements": len(trainer.lineage),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def held_out(trainer, args, count: int) -> Exam:
    types, tasks = trainer.source.task_types, []
    families = families_of(types, args.seed_families)
    for name, task_type in types.items():
        known = {task.id for task in trainer.source.buffer.tasks(name)}
        drawn = task_type.seeds(count + len(known), seed=HELD_OUT_SEED, families=families[name])
        tasks += [task for task in drawn if task.id not in known][:count]
    return task_exam("crowd", tasks, types)


def ask(trainer, args, exam: Exam) -> ExamResult:
    sampler, run_many = trainer.source.sampler, trainer.source.executor.run_many
    try:
        with sampler.decoding(temperature=0.0):
            answers = answering.collect_answers(
                exam, trainer.population.names("student"), sampler, rows_per_call=args.generation_rows
            )
        return ExamResult(exam, answering.grade(exam, answers, exam.grader(run_many)))
    finally:
        trainer.close()


def summary(runs: Sequence[dict]) -> dict[str, dict]:
    """Mean and standard error over seeds of each setting's mean, best, worst and chosen student."""
    crowds: dict[str, list[dict]] = {}
    for run in runs:
        crowds.setdefault(run["setting"], []).append(run)
    single = crowds.get("1T1S", [])
    for size in (2, 4):
        groups = [single[i : i + size] for i in range(0, len(single) - size + 1, size)]
        if groups:
            crowds[f"{size} x 1T1S"] = [
                {"students": {f"seed_{run['seed']}": run["students"]["student_0"] for run in group}}
                for group in groups
            ]
    result = {}
    for name, group in crowds.items():
        values = {
            "mean": [statistics.mean(run["students"].values()) for run in group],
            "best": [max(run["students"].values()) for run in group],
            "worst": [min(run["students"].values()) for run in group],
        }
        if all("fitness" in run for run in group):
            values["chosen"] = [run["students"][max(run["fitness"], key=run["fitness"].get)] for run in group]
        result[name] = {"seeds": len(group)} | {kind: _mean_and_error(of) for kind, of in values.items()}
    return result


def _mean_and_error(values: Sequence[float]) -> dict[str, float | None]:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "standard_error": error}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="recipes/tiny/4t4s.yaml")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=96, help="held-out tasks of each type")
    parser.add_argument("--json", metavar="FILE", help="results; runs that are in it already are kept")
    arguments = parser.parse_args()
    filter_messages()
    about = {"config": arguments.config, "rounds": arguments.rounds, "tasks_per_type": arguments.tasks}
    runs = []
    if arguments.json and os.path.exists(arguments.json):
        with open(arguments.json, encoding="utf-8") as file:
            data = json.load(file)
        if data["about"] != about:
            parser.error(f"{arguments.json} holds runs of {data['about']}, not of {about}: name another file")
        runs = data["runs"]
    for seed in arguments.seeds:
        for setting in arguments.settings:
            if any((run["setting"], run["seed"]) == (setting, seed) for run in runs):
                continue
            size, interval = SETTINGS[setting]
            with tempfile.TemporaryDirectory() as folder:
                result = play(
                    arguments.config,
                    size,
                    interval,
                    seed=seed,
                    rounds=arguments.rounds,
                    tasks=arguments.tasks,
                    folder=folder,
                )
            runs.append({"setting": setting, "seed": seed} | result)
            solved = ", ".join(f"{100 * value:.1f}" for value in result["students"].values())
            print(f"{setting:14} seed {seed}: base {100 * result['base']:.1f}, students {solved}", flush=True)
            if arguments.json:
                with open(arguments.json, "w", encoding="utf-8") as file:
                    json.dump({"about": about, "summary": summary(runs), "runs": runs}, file, indent=1)
                    file.write("\n")
    print(f"\n{'':14} {'seeds':>5}  {'mean':>12}  {'best':>12}  {'worst':>12}  {'chosen':>12}")
    for name, row in summary(runs).items():
        cells = [
            f"{100 * row[kind]['mean']:5.1f} ± {100 * (row[kind]['standard_error'] or math.nan):4.1f}"
            if kind in row
            else ""
            for kind in ("mean", "best", "worst", "chosen")
        ]
        print(f"{name:14} {row['seeds']:5}  " + "  ".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()

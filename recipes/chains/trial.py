"""A measured trial of a recipe: what teachers propose by round, and what students can do by depth, before and after.

    python -m recipes.chains.trial recipes/chains/1t1s.yaml --minutes 5 --json trial.json

from the folder that holds `recipes/`. `--shuffled` is the control: within each round, rewards go to random rows
of the same role. Further options are settings of the recipe, as in `python -m trl_populora.train`.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback

from trl_populora.diagnostics.summary import RoundSummary
from trl_populora.evaluation import Exam, make_exam
from trl_populora.evaluation.answering import BASE, collect_answers, grade
from trl_populora.evaluation.results import ExamResult, per_question
from trl_populora.generation import TransformersSampler
from trl_populora.recipe import parse
from trl_populora.self_play.sampling import Completion
from trl_populora.tasks.code.families.chains import depth
from trl_populora.train import build, prepare_output
from trl_populora.training import PopulationSelfPlayTrainer


logger = logging.getLogger(__name__)

EXAM_SEED = 7
EXAMS = ["recipes.chains.exams:chains", "recipes.chains.exams:chains_held_out"]


class Deadline(TrainerCallback):
    """Ends a training after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop |= time.monotonic() > self.end


def watch(trainer: PopulationSelfPlayTrainer) -> list[dict[str, float | None]]:
    """A list that grows by one record in each round: depth of the valid tasks of the round, and solve rate."""
    rounds: list[dict[str, float | None]] = []
    began, show, seen = time.monotonic(), trainer.on_round, set()

    def on_round(summary: RoundSummary) -> None:
        new = [task for task in trainer.source.buffer.proposed() if task.id not in seen]
        seen.update(task.id for task in new)
        depths = [found for found in (depth(task.payload.program) for task in new) if found is not None]
        record = {
            "round": summary.round,
            "seconds": round(time.monotonic() - began, 1),
            "tasks": len(new),
            "mean_depth": round(float(np.mean(depths)), 2) if depths else None,
            "greatest_depth": max(depths, default=None),
            "solve_rate": summary.solve_rate,
        }
        rounds.append(record)
        show(summary)

    trainer.on_round = on_round
    return rounds


def shuffle_rewards(trainer: PopulationSelfPlayTrainer) -> None:
    """The control: nothing can be learnt from the rewards, all else is as it was."""
    play = trainer.source.self_play.play

    def shuffled(sampler: Any, *, round: int, **settings: Any) -> Any:
        played, rng, rows = play(sampler, round=round, **settings), random.Random(round), []
        for role in ("teacher", "student"):
            own = [row for row in played.rows if row.role == role]
            rewards = rng.sample([row.reward for row in own], len(own))
            rows += [row._replace(reward=reward) for row, reward in zip(own, rewards, strict=True)]
        return played._replace(rows=rows)

    trainer.source.self_play.play = shuffled


def practise(trainer: PopulationSelfPlayTrainer, families: Sequence[str]) -> None:
    """The control: teachers propose fresh tasks of these families, whatever they learn."""
    play, tokenizer = trainer.source.self_play.play, trainer.processing_class
    (code_o,) = trainer.source.self_play.task_types.values()

    def fixed(sampler: Any, *, round: int, **settings: Any) -> Any:
        rng = random.Random(f"practice/{round}")

        def sample(prompts: Sequence[Any], members: Sequence[str | None], **kwargs: Any) -> list[Completion]:
            written = sampler(prompts, members, **kwargs)
            return [
                propose(one) if member in trainer.population.teachers else one
                for one, member in zip(written, members, strict=True)
            ]

        def propose(written: Completion) -> Completion:
            text = code_o.propose_completion(code_o.generate(rng, families=families))
            ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            return written._replace(text=text, ids=ids, logprobs=None)

        return play(sample, round=round, **settings)

    trainer.source.self_play.play = fixed


def answers(
    trainer: PopulationSelfPlayTrainer, exam: Exam, samples: int, *, temperature: float, base: bool
) -> ExamResult:
    """Answers of the base, or of all students; greedy ones at temperature 0."""
    sampler = TransformersSampler(
        trainer.population,
        trainer.processing_class,
        max_completion_length=exam.max_completion_length,
        temperature=temperature,
        batch_size=256,
    )
    population = trainer.population
    members = [] if base else [population.adapter_of(name) for name in population.students]
    written = collect_answers(exam, members, sampler, base=base, samples=samples, seed=EXAM_SEED, rows_per_call=256)
    return ExamResult(exam, grade(exam, written, exam.grader(trainer.source.executor.run_many)))


def compare(before: ExamResult, after: ExamResult) -> dict[str, dict[str, float]]:
    """Shares of right answers by depth, of the base and as the mean of the students, and the gain with its standard
    error: that of the mean over questions of paired differences."""
    old = per_question(before.scores(BASE))
    new = np.mean([per_question(after.scores(one)) for one in after.players], axis=0)
    groups = np.array([one.group for one in before.exam.questions])
    table = {}
    for group in [*before.groups, "all"]:
        own = np.full(len(groups), True) if group == "all" else groups == group
        gains = new[own] - old[own]
        table[group] = {
            "before": round(float(old[own].mean()), 3),
            "after": round(float(new[own].mean()), 3),
            "gain": round(float(gains.mean()), 3),
            "error": round(float(gains.std(ddof=1) / np.sqrt(len(gains))), 3),
            "questions": int(own.sum()),
        }
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, ask before and after, log and write what was found."""
    parser = argparse.ArgumentParser(description="A measured trial in the world of chains.")
    parser.add_argument("recipe", help="a recipe of recipes/chains")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="training ends after the round in which they are over"
    )
    parser.add_argument("--samples", type=int, default=2, help="answers to each question of an exam")
    parser.add_argument("--temperature", type=float, default=1.0, help="of these answers; 0 is greedy")
    parser.add_argument("--exams", nargs="+", default=EXAMS, help="module:function of each exam")
    parser.add_argument("--questions", type=int, default=216, help="first questions of each exam")
    parser.add_argument("--shuffled", action="store_true", help="the control: rewards of random rows")
    parser.add_argument("--practice", nargs="+", help="the control: teachers' tasks are fresh ones of these families")
    parser.add_argument("--json", type=Path, help="file for the results")
    options, settings = parser.parse_known_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run, args = parse(["--config", options.recipe, *settings])
    prepare_output(args)
    view, trainer = build(run, args)
    if options.shuffled:
        shuffle_rewards(trainer)
    if options.practice:
        practise(trainer, options.practice)
    exams = [make_exam(name, {}).first(options.questions) for name in options.exams]
    asked = {"samples": options.samples, "temperature": options.temperature}
    before = [answers(trainer, exam, **asked, base=True) for exam in exams]
    rounds = watch(trainer)
    trainer.add_callback(Deadline(60 * options.minutes))
    with view:
        trainer.train()
    after = [answers(trainer, exam, **asked, base=False) for exam in exams]
    result = {
        "recipe": options.recipe,
        "settings": settings,
        "shuffled": options.shuffled,
        "practice": options.practice,
        **asked,
        "exams": {
            exam.name: {"version": exam.version, "scores": compare(*pair)}
            for exam, *pair in zip(exams, before, after, strict=True)
        },
        "rounds": rounds,
    }
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    for name, exam in result["exams"].items():
        logger.info("%s\n%-10sbefore  after   gain  error", name, "")
        for group, one in exam["scores"].items():
            logger.info("%-10s%6.2f %6.2f %+6.2f %6.2f", group, one["before"], one["after"], one["gain"], one["error"])
    trainer.close()


if __name__ == "__main__":
    main()

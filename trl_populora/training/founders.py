"""`Founders`: the members at the start of a run, as opponents of the current members. An absolute measure of progress.

Ratings compare members with their current opponents, who learn, too. Founders do not learn. So two numbers change only
if the members change: how many of the founders' tasks current students solve, and how many of the current teachers'
tasks founders cannot solve. These games do not change ratings, the buffer or the records of rounds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from ..diagnostics.dynamics import mean
from ..evaluation.held_out import task_exam
from ..population import Population
from ..population.factors import Factors, from_tensors, on_cpu, to_tensors
from ..run_files.files import write_file
from ..run_files.layout import founder_file
from ..self_play.records import Proposal
from ..self_play.requests import proposal_request
from ..self_play.verification import verify
from ..tasks import Referee, Task, TaskBuffer, is_spared
from .ranks import checksum


if TYPE_CHECKING:
    from ..evaluation.results import ExamResult
    from .examiner import Examiner
    from .self_play_source import SelfPlaySource

SOLVE, PROPOSE = "founders", "proposals"
"""Names of the two exams in the table of samples: the founders' tasks, and today's teachers' tasks."""


class Founders:
    """Frozen opponents, and the prompts that they and the current teachers answer.

    Prompts show seed tasks, depend on the seed of the run, and never change. Founders with equal weights (fresh
    adapters, or copies after one warm start) count as one player.

    Args:
        source ([`SelfPlaySource`]): Already set up, with only seed tasks in its buffer.
        prompts (`int`): Proposal prompts per task type.

    Attributes:
        tasks (`list[Task]` or `None`): The founder teachers' valid tasks, an exam that never changes; `None` before
            the start.
        students (`dict[str, Factors]`): The founder students' weights, on the CPU.
    """

    def __init__(self, source: SelfPlaySource, *, prompts: int) -> None:
        self.source, game = source, source.self_play
        self.seed = game.settings.seed_for(0, SOLVE)
        self.known = TaskBuffer(source.task_types, source.buffer.capacity, reserved=source.buffer.reserved)
        self.known.load_state_dict(source.buffer.state_dict())
        rules = {"settings": game.settings, "lengths": game.lengths}
        self.requests = [
            proposal_request("", kind, self.known, random.Random(f"{self.seed}:{name}:{i}"), **rules)
            for name, kind in source.task_types.items()
            for i in range(prompts)
        ]
        self.tasks: list[Task] | None = None
        self.students: dict[str, Factors] = {}

    @property
    def started(self) -> bool:
        return self.tasks is not None

    def start(self, examiner: Examiner) -> None:
        """Makes the current members the founders: stores the students, and lets the teachers write their tasks."""
        population = self.source.population
        self.students = {
            player: on_cpu(population.factors(population.adapter_of(player)))
            for player in _different(population, population.students)
        }
        self.tasks = _tasks(self._propose(_different(population, population.teachers), examiner))

    def play(self, examiner: Examiner) -> tuple[dict[str, Any], list[ExamResult]]:
        """Plays the current members against the founders.

        Returns:
            `dict` and `list[ExamResult]`: The record, and all answers. Shares are `None` if nothing was judged.
        """
        population, types = self.source.population, self.source.task_types
        results, solved = [], {}
        if self.tasks:
            results.append(examiner.examine(task_exam(SOLVE, self.tasks, types), population.students))
            solved = {student: mean(results[0].scores(student)[:, 0]) for student in population.students}
        proposals = self._propose(population.teachers, examiner)
        tasks = _tasks(proposals)
        if tasks:
            exam = task_exam(PROPOSE, tasks, types)
            now = examiner.examine(exam, population.students)
            then = replace(now, samples=self._founders_answer(exam, examiner))
            results += [replace(now, samples=[*then.samples, *now.samples])]
        teachers, authors = {}, {}
        for teacher in population.teachers:
            judged = [one for one in proposals if one.member == teacher and not is_spared(one.refusal)]
            own = {one.task.id for one in judged if one.task is not None}
            authors[teacher] = sorted(own)
            teachers[teacher] = {
                "proposals": len(judged),
                "valid": mean(one.valid for one in judged),
                "tasks": len(own),
                "unsolved": _unsolved(then, own) if own else None,
                "unsolved_now": _unsolved(now, own) if own else None,
            }
        record = {
            "tasks": len(self.tasks or ()),
            "version": results[0].exam.version if self.tasks else None,
            "founders": list(self.students),
            "students": {name: {"solved": solved.get(name)} for name in population.students},
            "teachers": teachers,
            "authors": authors,
        }
        return record, results

    # Files -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": [task.to_json() for task in self.tasks or ()], "students": list(self.students)}

    def save(self, folder: str) -> None:
        """Writes the founder students' weights."""
        for name, factors in self.students.items():
            tensors = {key: X.contiguous() for key, X in to_tensors(factors).items()}
            write_file(os.path.join(folder, founder_file(name)), partial(save_file, tensors))

    def load(self, folder: str, state: Mapping[str, Any]) -> None:
        """Restores the results of `save` and `state_dict`."""
        types, population = self.source.task_types, self.source.population
        self.tasks = [types[record["type"]].read_task(record) for record in state["tasks"]]
        any_member = population.factors(next(iter(population)))
        scalings = {path: factor.scaling for path, factor in any_member.items()}
        self.students = {
            name: from_tensors(load_file(os.path.join(folder, founder_file(name))), scalings)
            for name in state["students"]
        }

    # One game ----------------------------------------------------------------------------------------------------

    def _propose(self, teachers: Sequence[str], examiner: Examiner) -> tuple[Proposal, ...]:
        """Proposals, sampled and verified as in a round, with the same random numbers at every step."""
        source, places = self.source, {name: i for i, name in enumerate(self.source.population.teachers)}
        requests = [request._replace(player=teacher) for teacher in teachers for request in self.requests]
        streams = [places[teacher] * len(self.requests) + i for teacher in teachers for i in range(len(self.requests))]
        written = examiner.draw(
            [request.prompt for request in requests],
            [request.player for request in requests],
            seed=self.seed,
            streams=streams,
        )
        referee = Referee(source.task_types, examiner.run)
        rules = {"buffer": self.known, "lengths": source.self_play.lengths, "group_size": 1, "step": 0}
        return verify(requests, written, referee=referee, **rules)

    def _founders_answer(self, exam: Any, examiner: Examiner) -> list:
        """The founder students' graded answers. They use the last guest adapter in turn, which is restored
        afterwards."""
        population = self.source.population
        guest = population.guests[-1]
        before, temperature = on_cpu(population.factors(guest)), population.routing.temperatures.get(guest, 1.0)
        answers = []
        try:
            for name, factors in self.students.items():
                population.admit(guest, factors)
                examiner.sampler.sync()
                samples = examiner.examine(exam, [guest]).samples
                answers += [replace(one, player=f"{name}@0") for one in samples]
        finally:
            population.admit(guest, before, temperature=temperature)
        return answers


def _tasks(proposals: Iterable[Proposal]) -> list[Task]:
    """The valid tasks, without duplicates between teachers."""
    return list({one.task.id: one.task for one in proposals if one.task is not None}.values())


def _unsolved(result: ExamResult, tasks: set[str]) -> float | None:
    """Share of all judged answers to some tasks that do not solve them."""
    places = {i for i, question in enumerate(result.exam.questions) if question.id in tasks}
    return mean(1.0 - one.grade.score for one in result.samples if one.question in places)


def _different(population: Population, players: Sequence[str]) -> list[str]:
    """Players without duplicates. Players are equal if their weights (or their lack of weights) and temperatures are
    equal."""
    first: dict[tuple, str] = {}
    for player in players:
        name = population.adapter_of(player)
        moved = any(factor.B.any() for factor in population.factors(name).values())
        weights = checksum(population.parameters(name)).item() if moved else None
        first.setdefault((weights, population[name].temperature), player)
    return list(first.values())

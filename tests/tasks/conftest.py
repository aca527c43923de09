import random

import pytest

from trl_populora.executor import Executor, Limits
from trl_populora.tasks import Answer, Draft, Refusal, Task, task_types


@pytest.fixture(scope="session")
def executor():
    with Executor(workers=2, limits=Limits(cpu_seconds=0.3, wall_seconds=3.0)) as executor:
        yield executor


@pytest.fixture
def rng() -> random.Random:
    return random.Random(0)


@pytest.fixture(params=["full", "compact"])
def style(request) -> str:
    return request.param


class Play:
    """Proposing and answering as a round does it, with the real executor."""

    def __init__(self, executor: Executor, **options):
        self.types = task_types("compact", **options)
        self.executor = executor

    def propose(self, type: str, completion: str, references=()) -> Task | Refusal:
        return self.propose_all(type, [(completion, references)])[0]

    def propose_all(self, type: str, proposals) -> list[Task | Refusal]:
        task_type = self.types[type]
        read = [task_type.parse_proposal(text, references) for text, references in proposals]
        drafts = [draft for draft in read if isinstance(draft, Draft)]
        runs = iter(self.executor.run_many([task_type.proposal_job(draft) for draft in drafts]))
        return [
            item
            if isinstance(item, Refusal)
            else task_type.finish_proposal(item, next(runs), author="teacher", step=3)
            for item in read
        ]

    def solved(self, task: Task, completion: str) -> bool:
        return self.solved_all([(task, completion)])[0]

    def solved_all(self, attempts) -> list[bool]:
        read = [self.types[task.type].parse_answer(task, text) for task, text in attempts]
        jobs = {
            i: job
            for i, ((task, _), answer) in enumerate(zip(attempts, read))
            if isinstance(answer, Answer) and (job := self.types[task.type].answer_job(task, answer))
        }
        runs = dict(zip(jobs, self.executor.run_many(list(jobs.values()))))
        return [
            isinstance(answer, Answer) and self.types[task.type].judge(task, answer, runs.get(i))
            for i, ((task, _), answer) in enumerate(zip(attempts, read))
        ]


@pytest.fixture
def play(executor) -> Play:
    return Play(executor)


@pytest.fixture
def play_with(executor):
    return lambda **options: Play(executor, **options)

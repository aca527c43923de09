import random

import pytest

from tests.code_tasks import code_types
from trl_populora.executor import Executor, Limits
from trl_populora.tasks import REASONS, Referee, Refusal, Task


@pytest.fixture(scope="session")
def executor():
    with Executor(workers=2, limits=Limits(cpu_seconds=0.3, wall_seconds=30.0)) as executor:
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
        self.types = code_types("compact", **options)
        self.executor = executor
        self.referee = Referee(self.types, executor.run_many)

    def propose(self, type: str, completion: str, references=()) -> Task | Refusal:
        return self.propose_all(type, [(completion, references)])[0]

    def propose_all(self, type: str, proposals) -> list[Task | Refusal]:
        texts, references = zip(*proposals)
        types = [type] * len(texts)
        verified = self.referee.verify(types, self.referee.parse(types, texts, references))
        reasons = {one.reason for one in verified if isinstance(one, Refusal)}
        assert reasons <= {*REASONS, *self.types[type].reasons}, "a reason that no table explains"
        return [
            one if isinstance(one, Refusal) else Task.create(type, one, author="teacher", step=3) for one in verified
        ]

    def solved(self, task: Task, completion: str) -> bool:
        return self.solved_all([(task, completion)])[0]

    def solved_all(self, attempts) -> list[bool]:
        return [verdict.solved for verdict in self.referee.judge(*zip(*attempts))]


@pytest.fixture
def play(executor) -> Play:
    return Play(executor)


@pytest.fixture
def play_with(executor):
    return lambda **options: Play(executor, **options)

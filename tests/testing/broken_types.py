"""Countdown, broken in one place each. `BROKEN` says what the contract suite must answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from trl_populora.executor import Job, Status
from trl_populora.tasks.base import Features
from trl_populora.tasks.countdown import Countdown, CountdownPuzzle
from trl_populora.tasks.parsing import completion_fences, last_body
from trl_populora.tasks.task import Answer, Draft, Payload, Refusal, Task


BROKEN: dict[type[Countdown], str] = {}


def broken(message: str):
    """Files a class under the message that `check_task_type` must give for it."""

    def file(cls: type[Countdown]) -> type[Countdown]:
        cls = dataclass(frozen=True)(cls)
        BROKEN[cls] = message
        return cls

    return file


def body(completion: str) -> str:
    return last_body(completion_fences(completion), "expression") or "0"


@broken("id must be lower-case")
class BadId(Countdown):
    id: ClassVar[str] = "my/type"


@broken("payload must be a subclass of Payload")
class BadPayload(Countdown):
    payload: ClassVar[type] = dict


@broken("must say what it means")
class ReasonWithoutMeaning(Countdown):
    reasons: ClassVar[dict] = {**Countdown.reasons, "other": ""}


@broken("style='no such style' must raise ValueError")
class UncheckedStyle(Countdown):
    def __post_init__(self) -> None:
        pass


@broken("families must be a tuple of names")
class FamiliesAsText(Countdown):
    families: ClassVar = "two_numbers"


@broken("easy_families name .'easy'., which `families` does not have")
class UnknownEasyFamily(Countdown):
    easy_families: ClassVar = ("easy",)


@broken("author must be 'seed'")
class SeedOfAMember(Countdown):
    def generate(self, rng, *, families=None):
        return replace(super().generate(rng, families=families), author="me")


@broken("generate with equal states of rng")
class RandomTasks(Countdown):
    def generate(self, rng, *, families=None):
        return super().generate(random.Random(), families=families)

    def seeds(self, count, *, seed=0, families=None):
        return Countdown().seeds(count, seed=seed, families=families)


@broken("seeds with equal seeds must be equal")
class RandomSeeds(Countdown):
    def seeds(self, count, *, seed=0, families=None):
        return super().seeds(count, seed=random.getrandbits(64), families=families)


@broken("must give 8 different tasks")
class RepeatedSeeds(Countdown):
    def seeds(self, count, *, seed=0, families=None):
        return super().seeds(1, seed=seed, families=families) * count


@broken("unknown family must raise ValueError")
class AnyFamily(Countdown):
    def seeds(self, count, *, seed=0, families=None):
        return super().seeds(count, seed=seed)


@broken("differs in a process with another PYTHONHASHSEED")
class HashedSeeds(Countdown):
    def generate(self, rng, *, families=None):
        return super().generate(random.Random(hash(f"{rng.random()}")), families=families)


@broken("differs in a process with another PYTHONHASHSEED")
class HashedPrompts(Countdown):
    def propose_prompt(self, references, rng):
        words = " ".join({"invent", "write", "find", "make", "think", "of", "a", "puzzle"})
        return [{"role": "user", "content": words}]


@broken("it set an attribute|evaluated or reached the system: exec")
class Evaluates(Countdown):
    def parse_answer(self, task, completion):
        try:
            return Answer(replace_value(super().parse_answer(task, completion), eval(body(completion))))  # noqa: S307
        except Exception:
            return super().parse_answer(task, completion)


def replace_value(answer, value):
    return answer.value if isinstance(answer, Answer) else value


@broken("evaluated or reached the system: open")
class OpensFiles(Countdown):
    def parse_proposal(self, completion, references):
        try:
            with open(completion.split("'")[1] if "'" in completion else "nothing") as file:
                return super().parse_proposal(file.read(), references)
        except (OSError, ValueError):
            return super().parse_proposal(completion, references)


@broken("evaluated or reached the system: subprocess.Popen")
class RunsCommands(Countdown):
    def parse_answer(self, task, completion):
        import subprocess

        if "touch" in completion:
            subprocess.run(["echo", completion], capture_output=True)
        return super().parse_answer(task, completion)


@broken("something was printed")
class Prints(Countdown):
    def parse_answer(self, task, completion):
        if len(completion) > 90_000:
            print(len(completion))
        return super().parse_answer(task, completion)


@broken("parse_proposal raised SystemExit")
class Leaves(Countdown):
    def parse_proposal(self, completion, references):
        if "SystemExit" in completion:
            raise SystemExit
        return super().parse_proposal(completion, references)


@broken("exit code 9")
class Dies(Countdown):
    def parse_proposal(self, completion, references):
        import os

        if "SystemExit" in completion:
            os._exit(9)
        return super().parse_proposal(completion, references)


@broken("parse_answer raised RecursionError")
class Recurses(Countdown):
    def parse_answer(self, task, completion):
        def depth(text):
            return 1 + depth(text[1:]) if text.startswith("(") else 0

        depth(body(completion))
        return super().parse_answer(task, completion)


@broken("parse_answer raised SyntaxError: .*must give a Refusal")
class ReadsTheFence(Countdown):
    def parse_answer(self, task, completion):
        compile(completion, "answer", "eval")
        return super().parse_answer(task, completion)


@broken("generate raised KeyError")
class MissesFamilies(Countdown):
    def generate(self, rng, *, families=None):
        return {}["families"]


@broken("parse_answer raised UnicodeEncodeError")
class Encodes(Countdown):
    def parse_answer(self, task, completion):
        completion.encode()
        return super().parse_answer(task, completion)


@broken("judge raised ZeroDivisionError")
class Divides(Countdown):
    def judge(self, tasks, answers, run):
        for answer in answers:
            if answer.value.value is None:
                raise ZeroDivisionError
        return super().judge(tasks, answers, run)


@broken("parse_proposal returned a NoneType")
class ReturnsNothing(Countdown):
    def parse_proposal(self, completion, references):
        return super().parse_proposal(completion, references) if "```" in completion else None


@broken("reason 'boring' is not declared")
class UndeclaredReason(Countdown):
    def parse_proposal(self, completion, references):
        return super().parse_proposal(completion, references) if "```" in completion else Refusal("boring")


@broken("the round trip through JSON changes|build|to JSON")
class LossyPayload(Countdown):
    @dataclass(frozen=True)
    class Lossy(CountdownPuzzle):
        def to_json(self):
            return {**super().to_json(), "solution": self.solution.replace(" ", "")}

    payload: ClassVar[type[Payload]] = Lossy

    def generate(self, rng, *, families=None):
        return Task.create(self.id, self.Lossy(*super().generate(rng, families=families).payload.to_json().values()))


@broken("would end a block or a turn")
class ReservedText(Countdown):
    def parse_proposal(self, completion, references):
        draft = super().parse_proposal(completion, references)
        if isinstance(draft, Draft) or "<|im_end|>" not in completion:
            return draft
        puzzle = CountdownPuzzle((1, 2), 3, completion)
        return Draft(self.key(puzzle), puzzle)


@broken("content must be text|a message is a dict")
class NoMessages(Countdown):
    def solve_prompt(self, task):
        return [{"role": "user", "text": "Solve it."}]


@broken("is not the same each time")
class ChangingPrompts(Countdown):
    def propose_prompt(self, references, rng):
        if rng.random() < 2:  # the process of the fingerprint sees the same
            COUNTER.append(1)
        return [{"role": "user", "content": f"Write an expression. {len(COUNTER) % 17}"}]


COUNTER: list[int] = []


@broken("holds the right completion")
class GivesAway(Countdown):
    def solve_prompt(self, task):
        return [*super().solve_prompt(task), {"role": "user", "content": self.solve_completion(task)}]


@broken("propose_completion .* is refused")
class WrongExample(Countdown):
    def propose_completion(self, task):
        return task.payload.solution


@broken("has the key 'another'")
class OtherKey(Countdown):
    def parse_proposal(self, completion, references):
        draft = super().parse_proposal(completion, references)
        return replace(draft, key="another") if isinstance(draft, Draft) else draft


@broken("question_keys and shown_keys .* share none")
class LeavesItselfOut(Countdown):
    def shown_keys(self, payload):
        return ("another",)


@broken("question_keys must give a tuple or set of str")
class KeysOfNumbers(Countdown):
    def question_keys(self, payload):
        return (*super().question_keys(payload), 3)


@broken("proposing .* gave")
class OtherPayload(Countdown):
    def verify(self, drafts, run):
        return [replace(draft.content, target=draft.content.target + 1) for draft in drafts]


@broken("verify decides otherwise")
class BatchDependent(Countdown):
    def verify(self, drafts, run):
        return super().verify(drafts, run) if len(drafts) != 1 else [Refusal("trivial")]


@broken("verify with a failing executor gave")
class BlamesTheProgram(Countdown):
    def verify(self, drafts, run):
        statuses = [execution.status for execution in run([Job("def f(): return 1", ((),))] * len(drafts))]
        return [draft.content if s is Status.OK else Refusal("trivial") for draft, s in zip(drafts, statuses)]


@broken("judge with a failing executor gave|not a bool or the Refusal of a failed execution")
class BlamesTheAnswer(Countdown):
    def judge(self, tasks, answers, run):
        ran = [execution.status is Status.OK for execution in run([Job("def f(): return 1", ((),))] * len(answers))]
        return [right and ok for right, ok in zip(super().judge(tasks, answers, run), ran)]


@broken("takes the answers to other tasks as right")
class AlwaysRight(Countdown):
    def judge(self, tasks, answers, run):
        return [True] * len(tasks)


@broken("the right answer to .* was judged False")
class NeverRight(Countdown):
    def judge(self, tasks, answers, run):
        return [False] * len(tasks)


@broken("judge gave None")
class NoVerdict(Countdown):
    def judge(self, tasks, answers, run):
        return [result or None for result in super().judge(tasks, answers, run)]


@broken("judge gave . results for")
class OneVerdictTooFew(Countdown):
    def judge(self, tasks, answers, run):
        return super().judge(tasks, answers, run)[:-1]


@broken("parse_proposal must give a Draft or a Refusal, got None")
class ReadsNothing(Countdown):
    def parse_proposal(self, completion, references):
        return None


@broken("features must be .measures, space, point. or None")
class HalfOfTheFeatures(Countdown):
    def features(self, task):
        return {"a": 1}


@broken("reasons must map each reason to its meaning")
class ReasonsAsList(Countdown):
    reasons: ClassVar[list] = ["other"]


@broken("is judged a right answer")
class RewardsTalk(Countdown):
    def parse_answer(self, task, completion):
        answer = super().parse_answer(task, completion)
        return Answer("talk") if isinstance(answer, Refusal) and len(completion) > 90_000 else answer

    def judge(self, tasks, answers, run):
        return [
            answer.value == "talk" or super(RewardsTalk, self).judge([task], [answer], run)[0]
            for task, answer in zip(tasks, answers)
        ]


@broken("measures must be numbers")
class NotANumber(Countdown):
    def features(self, task):
        return super().features(task)._replace(measures={"hardness": float("nan")})


@broken(r"point must be 4 numbers in \[0, 1\]")
class OutOfRange(Countdown):
    def features(self, task):
        return Features({}, "countdown", (0.0, 0.0, 0.0, 1.5))

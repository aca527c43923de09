"""A task type in one file, without programs and without prompts worth reading: two numbers and their sum."""

from __future__ import annotations

import random
from dataclasses import dataclass

from trl_populora.tasks import Answer, Draft, Features, Payload, Refusal, Task, TaskType
from trl_populora.tasks.task import content_id
from trl_populora.tasks.wording import user


@dataclass(frozen=True)
class Numbers(Payload):
    first: int
    second: int


@dataclass(frozen=True)
class Adding(TaskType):
    id = "adding"
    payload = Numbers
    reasons = {"no_numbers": "not two numbers"}

    largest: int = 99

    def propose_prompt(self, references, rng: random.Random):
        return user("Two numbers. " + " ".join(self.propose_completion(task) for task in references[:1]))

    def parse_proposal(self, completion, references):
        words = completion.split()
        if len(words) != 2 or not all(word.isascii() and word.isdigit() and len(word) < 9 for word in words):
            return Refusal("no_numbers")
        numbers = Numbers(*map(int, words))
        return Refusal("too_large") if max(map(int, words)) > self.largest else Draft(self.key(numbers), numbers)

    def verify(self, drafts, run):
        return [draft.content for draft in drafts]

    def propose_completion(self, task):
        return f"{task.payload.first} {task.payload.second}"

    def solve_prompt(self, task):
        return user(f"{task.payload.first} + {task.payload.second} =")

    def parse_answer(self, task, completion):
        text = completion.strip()
        return Answer(int(text)) if text.isascii() and text.isdigit() and len(text) < 9 else Refusal("no_numbers")

    def judge(self, tasks, answers, run):
        return [
            answer.value == task.payload.first + task.payload.second
            for task, answer in zip(tasks, answers, strict=True)
        ]

    def solve_completion(self, task):
        return str(task.payload.first + task.payload.second)

    def generate(self, rng, *, families=None):
        return Task.create(self.id, Numbers(rng.randint(0, self.largest), rng.randint(0, self.largest)))

    def simplest(self):
        return Task.create(self.id, Numbers(1, 1))

    def features(self, task):
        low, high = sorted((task.payload.first, task.payload.second))
        return Features({"largest": high}, "numbers", (low / self.largest, high / self.largest, 0.0, 0.0))

    def key(self, payload):
        return content_id(self.id, Numbers(*sorted((payload.first, payload.second))))

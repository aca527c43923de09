"""A task type of your own: the teacher writes a number, the student triples it. This checks it; to play it, here:
populora train --model_name_or_path tiny --output_dir own --use_cpu 1 --max_steps 2 --task_types own_task_type:Tripling
"""

import re
from dataclasses import dataclass

from trl_populora.tasks import Answer, Draft, Payload, Refusal, Task, TaskType
from trl_populora.tasks.wording import user
from trl_populora.testing import check_task_type


@dataclass(frozen=True)
class Number(Payload):
    number: str


@dataclass(frozen=True)
class Tripling(TaskType):
    id = "tripling"
    payload = Number
    reasons = {"bad": "not a whole number from 1 to 99999"}

    def propose_prompt(self, references, rng):
        return user("Write a number from 1 to 99999. " + " ".join(task.payload.number for task in references[:1]))

    def parse_proposal(self, text, references):
        return Draft(self.key(Number(text)), Number(text)) if re.fullmatch("[1-9][0-9]{0,4}", text) else Refusal("bad")

    def verify(self, drafts, run):
        return [draft.content for draft in drafts]

    def propose_completion(self, task):
        return task.payload.number

    def solve_prompt(self, task):
        return user(f"What is {task.payload.number}, tripled?")

    def parse_answer(self, task, text):
        return Answer(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else Refusal("bad")

    def judge(self, tasks, answers, run):
        return [answer.value == self.solve_completion(task) for task, answer in zip(tasks, answers)]

    def solve_completion(self, task):
        return str(3 * int(task.payload.number))

    def generate(self, rng, *, families=None):
        return Task.create(self.id, Number(str(rng.randint(1, 99999))))

    def simplest(self):
        return Task.create(self.id, Number("1"))

    def features(self, task):
        return None


if __name__ == "__main__":
    check_task_type(Tripling())
    print("Tripling keeps the contract of a task type.")

"""A task type of your own: the teacher writes a number, the student writes it backwards. This checks it; to play it:
populora train --model_name_or_path tiny --use_cpu 1 --output_dir own --max_steps 20 --num_teachers 2 --num_students 2
--warm_start_steps 100 --student_learning_rate 1e-3 --task_types own_task_type:Backwards   (all in one line, here)"""

import re
from dataclasses import dataclass

from trl_populora.tasks import Answer, Draft, Payload, Refusal, Task, TaskType
from trl_populora.tasks.wording import user
from trl_populora.testing import check_task_type


@dataclass(frozen=True)
class Number(Payload):
    number: str


@dataclass(frozen=True)
class Backwards(TaskType):
    id = "backwards"
    payload = Number
    reasons = {"bad": "no block with a number of up to three digits"}  # its labels are those that the tiny base knows

    def propose_prompt(self, references, rng):
        return user("\n".join(["Write a new number.", *map(self.propose_completion, references)]))

    def parse_proposal(self, text, references):
        found = re.search("```input\n([0-9]{1,3})\n```", text)
        return Draft(self.key(Number(found[1])), Number(found[1])) if found else Refusal("bad")

    def verify(self, drafts, run):
        return [draft.content for draft in drafts]

    def propose_completion(self, task):
        return f"```input\n{task.payload.number}\n```"

    def solve_prompt(self, task):
        return user(f"Write it backwards.\n{self.propose_completion(task)}")

    def parse_answer(self, task, text):
        return Answer(found[1]) if (found := re.search("```output\n([0-9]{1,3})\n```", text)) else Refusal("bad")

    def judge(self, tasks, answers, run):
        return [answer.value == task.payload.number[::-1] for task, answer in zip(tasks, answers)]

    def solve_completion(self, task):
        return f"```output\n{task.payload.number[::-1]}\n```"

    def generate(self, rng, *, families=None):
        return Task.create(self.id, Number(str(rng.randint(0, 999))))

    def simplest(self):
        return Task.create(self.id, Number("1"))

    def features(self, task):
        return None


if __name__ == "__main__":
    check_task_type(Backwards())

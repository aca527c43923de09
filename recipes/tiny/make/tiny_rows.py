"""What the tiny base is trained on: right rows of every role and task type, and how rows are spoilt in its last phase.

Spoiling is what makes ability latent: a model that has learnt it answers and proposes well only part of the time, and
reinforcement has something to lift.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import replace

from trl_populora.integrations.lightning import Example, Row, encode
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.tasks import make_task_types


# Pinned by name: families added later stay unseen. The other easy families are held out on purpose.
TRAINED_FAMILIES = tuple("add each keep total extreme reverse cut branch order count join repeat pick".split())
HELD_OUT_FAMILIES = ("two", "span", "yes_no", "letter_case")

NUM_FUNCTION_INPUTS = 4
TASK_KWARGS = {"code_f": {"num_inputs": NUM_FUNCTION_INPUTS}}
SHARES = {
    ("solve", "code_o"): 0.50,
    ("solve", "code_i"): 0.13,
    ("solve", "code_f"): 0.10,
    ("propose", "code_o"): 0.09,
    ("propose", "code_i"): 0.09,
    ("propose", "code_f"): 0.09,
}


class TinyExamples:
    """An endless supply of rows of every role and type, drawn afresh, equal for equal seeds.

    Args:
        seed (`int`): Seed of the rows.
        wrong_answers (`float`): Share of solutions that are spoilt.
        invalid_proposals, trivial_proposals (`float`): Shares of proposals that are spoilt in either way.
    """

    def __init__(
        self, seed: int, *, wrong_answers: float = 0.0, invalid_proposals: float = 0.0, trivial_proposals: float = 0.0
    ):
        self.wrong_answers = wrong_answers
        self.invalid_proposals, self.trivial_proposals = invalid_proposals, trivial_proposals
        self.spoilt = wrong_answers + invalid_proposals + trivial_proposals > 0
        self.rng = random.Random(f"{seed}/{self.spoilt}")
        types = make_task_types(style="compact", kwargs=TASK_KWARGS)
        self.seeds = SeedExamples(types, rng=self.rng, families=TRAINED_FAMILIES, references=512, seed=seed)

    def draw(self) -> Example:
        role, type_id = self.rng.choices(list(SHARES), weights=list(SHARES.values()))[0]
        example = self.seeds.solve(type_id) if role == "solve" else self.seeds.propose(type_id)
        if not self.spoilt:
            return example
        chance = self.rng.random()
        if role == "solve":
            right = example.completion
            return replace(example, completion=wrong_answer(right)) if chance < self.wrong_answers else example
        if chance < self.invalid_proposals:
            return replace(example, completion=invalid_proposal(example.completion, self.rng))
        if chance < self.invalid_proposals + self.trivial_proposals:
            return replace(example, completion=trivial_proposal(example.completion))
        return example

    def batches(self, tokenizer, *, steps: int, rows: int) -> Iterator[list[Row]]:
        for _ in range(steps):
            yield encode(tokenizer, [self.draw() for _ in range(rows)])


def wrong_answer(completion: str) -> str:
    """A well-formed answer that is wrong, by one fixed slip per kind of value.

    Numbers become one larger, lists get a 0 and strings an `a` at their end, truth values turn around; a program
    returns its result plus itself.
    """
    head, body, tail = re.fullmatch(r"(```\w+\n)(.*)(\n```)", completion, re.DOTALL).groups()
    if "def f(" in body:
        line, _, value = body.rpartition("return ")
        return f"{head}{line}return {value} + {value}{tail}"
    if re.fullmatch(r"-?\d+", body):
        return f"{head}{int(body) + 1}{tail}"
    if body in ("True", "False"):
        return f"{head}{body != 'True'}{tail}"
    if body.endswith("]"):
        return f"{head}{body[:-1]}{', ' if body != '[]' else ''}0]{tail}"
    return f"{head}{body[:-1]}a{body[-1]}{tail}"


def invalid_proposal(completion: str, rng: random.Random) -> str:
    """A proposal that is refused: a block too few, or an input that is no literal."""
    if rng.random() < 0.5:
        return completion[: completion.rindex("\n```", 0, -4)] + "\n```"
    at = completion.rindex("```input\n") + len("```input\n")
    return completion[:at] + "x" + completion[completion.index("\n```", at) :]


def trivial_proposal(completion: str) -> str:
    """The same input to a program that gives its argument back; a proposal without a program stays as it is."""
    program = re.match(r"```python\ndef f\((\w+).*?\):\n.*?(?=\n```)", completion, re.DOTALL)
    if program is None:
        return completion
    head = program.group().partition("\n    ")[0]
    return f"{head}\n    return {program.group(1)}{completion[program.end() :]}"

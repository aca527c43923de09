"""What the base of chains is trained on: rows of every role and type, with worked answers, and slips in the last phase."""

from __future__ import annotations

import random
from collections.abc import Sequence

from recipes.chains.make.worked import worked_input, worked_output
from trl_populora.integrations.lightning import Example
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.tasks import Task, make_task_types


TASK_KWARGS = {"code_f": {"num_inputs": 4}}
KIND_SHARES = {"chain_digits": 5, "chain_text": 3, "chain_table": 2}
LEVEL_SHARES = {"short": 10, "middle": 6, "long": 3, "blocks": 1}


def families(levels: Sequence[str] = tuple(LEVEL_SHARES)) -> tuple[str, ...]:
    """Families of these levels. One that stands there twice is drawn twice as often."""
    return tuple(
        f"{kind}_{level}"
        for kind, often in KIND_SHARES.items()
        for level in levels
        for _ in range(often * LEVEL_SHARES[level])
    )


SHARES = {
    ("solve", "code_o"): 0.50,
    ("solve", "code_i"): 0.08,
    ("solve", "code_f"): 0.07,
    ("propose", "code_o"): 0.20,
    ("propose", "code_i"): 0.08,
    ("propose", "code_f"): 0.07,
}
WORKED = {"code_o": worked_output, "code_i": worked_input}


class ChainExamples:
    """Rows of every role and type; equal seeds give equal rows.

    Args:
        seed (`int`): Seed of the stock of references.
        levels (`Sequence[str]`, *optional*): Levels of depth to draw from; all by default.
        types (`Sequence[str]`, *optional*): Ids of task types; all of `SHARES` by default.
        slips (`float`, *optional*, defaults to 0): Chance of a slip at each line of a worked answer.
    """

    def __init__(
        self,
        seed: int,
        *,
        levels: Sequence[str] = tuple(LEVEL_SHARES),
        types: Sequence[str] = ("code_o", "code_i", "code_f"),
        slips: float = 0.0,
    ) -> None:
        self.slips = slips
        self.shares = {key: share for key, share in SHARES.items() if key[1] in types}
        made = make_task_types(types, style="compact", kwargs=TASK_KWARGS)
        self.seeds = SeedExamples(made, rng=random.Random(seed), families=families(levels), references=1024, seed=seed)

    def batch(self, rows: int, *, seed: str) -> list[Example]:
        """So many rows; `seed` stands for the batch, whatever was drawn before."""
        self.seeds.rng = random.Random(seed)
        return [self._draw() for _ in range(rows)]

    def _draw(self) -> Example:
        rng = self.seeds.rng
        role, type_id = rng.choices(list(self.shares), weights=list(self.shares.values()))[0]
        if role == "propose":
            return self.seeds.propose(type_id)
        task = self.seeds.task(type_id)
        return Example(tuple(self.seeds.task_types[type_id].solve_prompt(task)), self.answer(task, rng))

    def answer(self, task: Task, rng: random.Random) -> str:
        """What a solver writes: worked out, if its type has such a form."""
        worked = WORKED.get(task.type)
        if worked is None:
            return self.seeds.task_types[task.type].solve_completion(task)
        return worked(task, slips=self.slips, rng=rng)

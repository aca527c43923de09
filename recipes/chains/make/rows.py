"""What the base of chains is trained on: rows of every role and type, with worked answers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from recipes.chains.make.worked import worked_input, worked_output
from trl_populora.integrations.lightning import Example
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.tasks import make_task_types


TASK_KWARGS = {"code_f": {"num_inputs": 4}}
KIND_SHARES = {"chain_digits": 5, "chain_text": 3, "chain_table": 2}
LEVEL_SHARES = {"short": 10, "middle": 6, "long": 3, "blocks": 1}


def families(
    kinds: Sequence[str] = tuple(KIND_SHARES), levels: Sequence[str] = tuple(LEVEL_SHARES)
) -> tuple[str, ...]:
    """Families of these kinds and levels. One that stands there twice is drawn twice as often."""
    return tuple(
        f"{kind}_{level}" for kind in kinds for level in levels for _ in range(KIND_SHARES[kind] * LEVEL_SHARES[level])
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
        kinds (`Sequence[str]`, *optional*): Kinds of state, as in `KIND_SHARES`; all by default.
        levels (`Sequence[str]`, *optional*): Levels of depth, as in `LEVEL_SHARES`; all by default.
        types (`Sequence[str]`, *optional*): Ids of task types; all of `SHARES` by default.
    """

    def __init__(
        self,
        seed: int,
        *,
        kinds: Sequence[str] = tuple(KIND_SHARES),
        levels: Sequence[str] = tuple(LEVEL_SHARES),
        types: Sequence[str] = ("code_o", "code_i", "code_f"),
    ) -> None:
        self.shares = {key: share for key, share in SHARES.items() if key[1] in types}
        made = make_task_types(types, style="compact", kwargs=TASK_KWARGS)
        self.seeds = SeedExamples(
            made, rng=random.Random(seed), families=families(kinds, levels), references=256, seed=seed
        )

    def batch(self, rows: int, *, seed: str, stops: float = 0.0) -> list[Example]:
        """
        So many rows, whatever was drawn before.

        Args:
            rows (`int`): How many.
            seed (`str`): Stands for the batch.
            stops (`float`, *optional*, defaults to 0): Chance that a worked answer ends too early after a line, from
                the third on.
        """
        self.seeds.rng = random.Random(seed)
        return [self._draw(self.seeds.rng, stops) for _ in range(rows)]

    def _draw(self, rng: random.Random, stops: float) -> Example:
        role, type_id = rng.choices(list(self.shares), weights=list(self.shares.values()))[0]
        if role == "propose":
            return self.seeds.propose(type_id)
        task_type, task = self.seeds.task_types[type_id], self.seeds.task(type_id)
        worked = WORKED.get(type_id)
        answer = task_type.solve_completion(task) if worked is None else worked(task, stops=stops, rng=rng)
        return Example(tuple(task_type.solve_prompt(task)), answer)

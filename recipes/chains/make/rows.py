"""What the base of chains is trained on: rows of every role and type, with worked answers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from recipes.chains.make.worked import worked_input, worked_output
from trl_populora.integrations.lightning import Example
from trl_populora.integrations.lightning.seed_examples import SeedExamples
from trl_populora.tasks import make_task_types


TASK_KWARGS = {"code_f": {"num_inputs": 4}}
KIND_SHARES = {"chain_digits": 5, "chain_text": 3, "chain_table": 2}
LEVEL_SHARES = {"short": 10, "middle": 6, "long": 3, "blocks": 1}


def weak_shares(every: int) -> dict[str, dict[str, int]]:
    """Shares for a base that confuses held-out statements: half of its tasks hold one, and one proposal of `every`."""
    return {
        "solve": {"short": 6, "middle": 4, "held_out": 10},
        "propose": {"short": 4 * (every - 1), "held_out": 4},
    }


def families(kinds: Sequence[str] = tuple(KIND_SHARES), levels: Mapping[str, int] = LEVEL_SHARES) -> tuple[str, ...]:
    """Families of these kinds and levels. One that stands there twice is drawn twice as often."""
    return tuple(
        f"{kind}_{level}" for kind in kinds for level in levels for _ in range(KIND_SHARES[kind] * levels[level])
    )


SHARES = {
    ("solve", "code_o"): 0.50,
    ("solve", "code_i"): 0.08,
    ("solve", "code_f"): 0.07,
    ("propose", "code_o"): 0.20,
    ("propose", "code_i"): 0.08,
    ("propose", "code_f"): 0.07,
}


class ChainExamples:
    """Rows of every role and type; equal seeds give equal rows.

    Args:
        seed (`int`): Seed of the stock of references.
        kinds (`Sequence[str]`, *optional*): Kinds of state, as in `KIND_SHARES`; all by default.
        levels (`Mapping[str, Mapping[str, int]]`, *optional*): Role -> level of depth -> share; `LEVEL_SHARES` for
            both roles by default.
        types (`Sequence[str]`, *optional*): Ids of task types; all of `SHARES` by default.
    """

    def __init__(
        self,
        seed: int,
        *,
        kinds: Sequence[str] = tuple(KIND_SHARES),
        levels: Mapping[str, Mapping[str, int]] | None = None,
        types: Sequence[str] = ("code_o", "code_i", "code_f"),
    ) -> None:
        levels = levels or dict.fromkeys(("solve", "propose"), LEVEL_SHARES)
        self.shares = {key: share for key, share in SHARES.items() if key[1] in types}
        made = make_task_types(types, style="compact", kwargs=TASK_KWARGS)
        self.rng = random.Random(seed)
        self.seeds = {
            role: SeedExamples(made, rng=self.rng, families=families(kinds, own), references=256, seed=seed)
            for role, own in levels.items()
        }

    def batch(self, rows: int, *, seed: str, stops: float = 0.0, confused: float = 0.0) -> list[Example]:
        """
        So many rows, whatever was drawn before.

        Args:
            rows (`int`): How many.
            seed (`str`): Stands for the batch.
            stops (`float`, *optional*, defaults to 0): Chance that a worked answer ends too early after a line, from
                the third on.
            confused (`float`, *optional*, defaults to 0): Chance that a worked answer to a `code_o` task takes a
                held-out statement for one that it resembles.
        """
        self.rng.seed(seed)
        return [self._draw(stops, confused) for _ in range(rows)]

    def _draw(self, stops: float, confused: float) -> Example:
        role, type_id = self.rng.choices(list(self.shares), weights=list(self.shares.values()))[0]
        seeds = self.seeds[role]
        if role == "propose":
            return seeds.propose(type_id)
        task_type, task = seeds.task_types[type_id], seeds.task(type_id)
        if type_id == "code_o":
            answer = worked_output(task, stops=stops, confused=confused, rng=self.rng)
        elif type_id == "code_i":
            answer = worked_input(task, stops=stops, rng=self.rng)
        else:
            answer = task_type.solve_completion(task)
        return Example(tuple(task_type.solve_prompt(task)), answer)

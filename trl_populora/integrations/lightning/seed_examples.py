"""Supervised examples from seed tasks: what an ideal proposer or solver writes, to the prompts of self-play."""

import random
from collections.abc import Mapping, Sequence

from ...tasks import Task, TaskBuffer, TaskType, generate_task, seed_tasks
from .completions import Example


class SeedExamples:
    """An endless supply of examples of one's choice of role and type, equal for equal seeds.

    Proposal prompts show references drawn as in self-play. A `code_f` proposal is about the program that its prompt
    shows, so there the example's own task is the reference.

    Args:
        task_types (`Mapping[str, TaskType]`): Task types by id.
        rng (`random.Random`): Source of all randomness.
        families (`Sequence[str]`, *optional*): Families of seed programs; default: all.
        references (`int`, *optional*, defaults to `256`): Seed tasks per type in the stock of references.
        seed (`int`, *optional*, defaults to `0`): Seed of that stock.
    """

    def __init__(
        self,
        task_types: Mapping[str, TaskType],
        *,
        rng: random.Random,
        families: Sequence[str] | None = None,
        references: int = 256,
        seed: int = 0,
    ):
        self.task_types, self.rng, self.families = task_types, rng, families
        self.num_function_inputs = getattr(task_types.get("code_f"), "num_inputs", 10)
        self.references = TaskBuffer()
        for type_id in task_types:
            if type_id != "code_f":
                for task in seed_tasks(references, seed=seed, type=type_id, families=families):
                    self.references.add(task)

    def task(self, type_id: str) -> Task:
        return generate_task(type_id, self.rng, families=self.families, num_function_inputs=self.num_function_inputs)

    def solve(self, type_id: str) -> Example:
        """A task and its right answer."""
        task_type, task = self.task_types[type_id], self.task(type_id)
        return Example(tuple(task_type.solve_prompt(task)), task_type.solve_completion(task))

    def propose(self, type_id: str) -> Example:
        """A request for a proposal and a valid one."""
        task_type, task = self.task_types[type_id], self.task(type_id)
        references = [task]
        if type_id != "code_f":
            references = self.references.references(type_id, task_type.max_references, self.rng)
        prompt = task_type.propose_prompt(references, self.rng)
        return Example(tuple(prompt), task_type.propose_completion(task))

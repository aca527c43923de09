"""Supervised examples from seed tasks: what an ideal teacher or student writes for the prompts of self-play."""

import random
from collections.abc import Collection, Mapping, Sequence

from ...evaluation import reserved_keys
from ...tasks import Task, TaskBuffer, TaskType, families_of
from .completions import Example


DRAWS = 200  # for a task that is not reserved


class SeedExamples:
    """An endless source of examples for a role and a type, equal for equal seeds.

    Proposal prompts show references drawn as in self-play, or those that a type requires (`example_references`).

    Args:
        task_types (`Mapping[str, TaskType]`): Task types by id.
        rng (`random.Random`): Source of all randomness.
        families (`Sequence[str]`, *optional*): Families of seed tasks; default: those of each type.
        references (`int`, *optional*, defaults to `256`): Number of seed tasks per type that serve as references, or
            all that there are, if a type has fewer.
        seed (`int`, *optional*, defaults to `0`): Seed of these references.
        reserved (`Collection[str]`, *optional*): Keys of tasks that no example may show; default: those of the
            held-out exams.
    """

    def __init__(
        self,
        task_types: Mapping[str, TaskType],
        *,
        rng: random.Random,
        families: Sequence[str] | None = None,
        references: int = 256,
        seed: int = 0,
        reserved: Collection[str] | None = None,
    ) -> None:
        self.task_types, self.rng, self.families = task_types, rng, families_of(task_types, families)
        self.references = TaskBuffer(task_types, reserved=reserved_keys(task_types) if reserved is None else reserved)
        for type_id, task_type in task_types.items():
            if type_id in (task_type.reference_types or (type_id,)):
                for task in task_type.seeds(references, seed=seed, families=self.families[type_id], fewer=True):
                    self.references.add(task)

    def task(self, type_id: str) -> Task:
        """A task that is not reserved.

        Raises:
            ValueError: If the families have no other task.
        """
        task_type, families = self.task_types[type_id], self.families[type_id]
        for _ in range(DRAWS):
            task = task_type.generate(self.rng, families=families)
            if not self.references.reserves(task):
                return task
        raise ValueError(
            f"families={families}: {DRAWS} {type_id} tasks of these families all belong to exams. Name more families."
        )

    def solve(self, type_id: str) -> Example:
        """A task and its right answer."""
        task_type, task = self.task_types[type_id], self.task(type_id)
        return Example(tuple(task_type.solve_prompt(task)), task_type.solve_completion(task))

    def propose(self, type_id: str) -> Example:
        """A request for a proposal and a valid one."""
        task_type, task = self.task_types[type_id], self.task(type_id)
        references = task_type.example_references(task, ())
        if not references:
            stock = self.references.references(type_id, task_type.max_references, self.rng)
            references = task_type.example_references(task, stock)
        prompt = task_type.propose_prompt(references, self.rng)
        return Example(tuple(prompt), task_type.propose_completion(task))

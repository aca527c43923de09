"""Tasks about Python programs, in the few words that tests need."""

from __future__ import annotations

from collections.abc import Iterable

from trl_populora.tasks import Task, TaskBuffer, TaskType, make_task_types
from trl_populora.tasks.code import CodePayload


TYPES = ("code_o", "code_i", "code_f")


def code_types(style: str = "full", *, num_function_inputs: int = 10, num_references=None, **limits):
    """The three Python types by id."""
    kwargs = {name: dict(limits) for name in TYPES}
    kwargs["code_f"]["num_inputs"] = num_function_inputs
    return make_task_types(TYPES, style=style, num_references=num_references, kwargs=kwargs)


def code_task(type: str, program: str, *, inputs, outputs, message: str = "", author: str = "seed", step: int = 0):
    return Task.create(type, CodePayload(program, tuple(inputs), tuple(outputs), message), author=author, step=step)


def task_of_pairs(type: str, program: str, pairs, message: str = "") -> Task:
    inputs, outputs = zip(*pairs)
    return code_task(type, program, inputs=inputs, outputs=outputs, message=message)


def code_seeds(count: int = 256, *, type: str = "code_o", seed: int = 0, families=None, num_function_inputs: int = 10):
    types = code_types(num_function_inputs=num_function_inputs)
    return types[type].seeds(count, seed=seed, families=families)


def code_draw(type: str, rng, *, families=None, num_function_inputs: int = 10) -> Task:
    return code_types(num_function_inputs=num_function_inputs)[type].generate(rng, families=families)


def code_buffer(capacity: int = 16384, tasks: Iterable[Task] = (), **options) -> TaskBuffer:
    types: dict[str, TaskType] = code_types()
    return TaskBuffer(types, capacity, tasks, **options)

"""Seed tasks: verified tasks drawn from the families, the fixed sets that buffers start from, and the identity seed.

The programs of `families/` are ours, so this module runs them by a plain `exec` in this process to get their outputs,
thousands a second. Nothing that a model or a user writes may ever pass here; their programs go to the executor. The
test suite runs every family through the executor too and compares.
"""

from __future__ import annotations

import marshal
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from trl_populora.executor import canonical, literals
from trl_populora.tasks.code_f import one_output
from trl_populora.tasks.families import FAMILIES
from trl_populora.tasks.task import Task


SEED_TYPES = ("code_o", "code_i", "code_f")
MAX_DRAWS = 100  # redraws before a family or a set of families counts as too small for what is asked

_IDENTITY = "def f(x):\n    return x"
_IDENTITY_MESSAGE = "Give back what comes in, unchanged."
_IDENTITY_INPUTS = ("'seed'", "1", "[1, 2]", "{'a': 0}", "(2.5, None)", "'[3]'", "True", "-40", "''", "{7}")


def generate_task(
    type: str,
    rng: random.Random,
    *,
    families: Sequence[str] | None = None,
    num_function_inputs: int = 10,
) -> Task:
    """
    Draws one verified task.

    Args:
        type (`str`):
            `"code_o"`, `"code_i"` or `"code_f"`.
        rng (`random.Random`):
            Source of all randomness: equal states give equal tasks.
        families (`Sequence[str]`, *optional*):
            Names from `FAMILIES` to draw from, each equally often. Default: all.
        num_function_inputs (`int`, *optional*, defaults to `10`):
            Input/output pairs of a `code_f` task.

    Returns:
        `Task` with author `"seed:<family>"` and step 0.

    Raises:
        `ValueError`: for an unknown type or family, fewer than 2 function inputs, or more than the families can vary.
    """
    _check(type, families, num_function_inputs)
    names = tuple(FAMILIES) if families is None else families
    wanted = num_function_inputs if type == "code_f" else 1
    for _ in range(MAX_DRAWS):
        name = rng.choice(names)
        program, supply, message = FAMILIES[name](rng)
        inputs = _distinct(supply, wanted)
        if inputs is None:
            continue
        outputs = _run_trusted(program, inputs.values())
        task = Task.create(
            type,
            program,
            inputs=tuple(inputs),
            outputs=outputs,
            message=message if type == "code_f" else "",
            author=f"seed:{name}",
        )
        if one_output(task) if type == "code_f" else (task.output == "None"):
            continue
        return task
    raise ValueError(
        f"found no {type} task with {wanted} distinct inputs in families {list(names)}; ask for fewer inputs or add "
        "families"
    )


def seed_tasks(
    count: int = 256,
    *,
    seed: int = 0,
    type: str = "code_o",
    num_function_inputs: int = 10,
    families: Sequence[str] | None = None,
) -> list[Task]:
    """
    A fixed set of tasks with distinct ids; what a buffer starts from.

    Args:
        count (`int`, *optional*, defaults to `256`):
            Number of tasks.
        seed (`int`, *optional*, defaults to `0`):
            Equal seeds give equal lists.
        type, num_function_inputs, families:
            As for [`generate_task`].

    Raises:
        `ValueError`: if the families do not hold that many distinct tasks.
    """
    rng = random.Random(f"{seed}/{type}")
    found: dict[str, Task] = {}
    for _ in range(MAX_DRAWS * max(count, 1)):
        if len(found) >= count:
            return list(found.values())
        task = generate_task(type, rng, families=families, num_function_inputs=num_function_inputs)
        found.setdefault(task.id, task)
    raise ValueError(f"families hold fewer than {count} distinct {type} tasks, found {len(found)}; add families")


def identity_tasks(num_function_inputs: int = 10) -> dict[str, Task]:
    """The zero-data seed: one task of each type about the identity function. Keys are task types."""
    _check("code_f", None, num_function_inputs)
    extra = (str(number) for number in range(100, 100 + num_function_inputs))
    texts = tuple(islice((*_IDENTITY_INPUTS, *extra), num_function_inputs))
    author = "seed:identity"
    one = dict.fromkeys(("code_o", "code_i"), texts[:1])
    tasks = {type: Task.create(type, _IDENTITY, inputs=t, outputs=t, author=author) for type, t in one.items()}
    tasks["code_f"] = Task.create(
        "code_f", _IDENTITY, inputs=texts, outputs=texts, message=_IDENTITY_MESSAGE, author=author
    )
    return tasks


def _check(type: str, families: Sequence[str] | None, num_function_inputs: int) -> None:
    if type not in SEED_TYPES:
        raise ValueError(f"type must be one of {SEED_TYPES}, got {type!r}")
    if num_function_inputs < 2:
        raise ValueError(f"num_function_inputs must be at least 2, got {num_function_inputs}")
    if families is not None and (not families or not set(families) <= FAMILIES.keys()):
        raise ValueError(f"families must be names from FAMILIES, got {list(families)}; known: {list(FAMILIES)}")


def _distinct(supply: Iterator[tuple], count: int) -> dict[str, tuple] | None:
    """`count` different argument tuples under their literal texts, or `None` if the supply varies too little."""
    found: dict[str, tuple] = {}
    for arguments in islice(supply, MAX_DRAWS + 10 * count):
        found.setdefault(", ".join(map(_text, arguments)), arguments)
        if len(found) == count:
            return found
    return None


def _run_trusted(program: str, inputs: Iterable[tuple]) -> tuple[str, ...]:
    """Output texts of one of our own programs. Every call gets a copy of its arguments, which it may change."""
    scope: dict = {"__name__": "seed"}
    exec(program, scope)  # a program of this package, never one from outside
    outputs = [scope["f"](*marshal.loads(marshal.dumps(arguments))) for arguments in inputs]
    # Through the canonical form, as the executor's results go: dicts come out sorted by key.
    return tuple(_text(canonical.decode(canonical.encode(output))) for output in outputs)


def _text(value: object) -> str:
    """`literals.to_literal` for our own values, at the speed of `repr` where no dict or set is in play."""
    text = repr(value)
    return literals.to_literal(value) if "{" in text or "set" in text else text

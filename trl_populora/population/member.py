"""`Member`: one row of the population's table."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ..run_files.layout import POPULATION_FILE


RESERVED_NAMES = ("default", "ref", "base", "__base__")


@dataclass(frozen=True)
class Member:
    """One individual of the population.

    Attributes:
        id (`str`): Name of the slot (the member's place in the population), such as `"teacher_0"`. It is also the name
            of the PEFT adapter.
        role (`str`): `"teacher"`, `"student"`, or `"shared"` (one adapter that plays both roles).
        slot (`int`): Position within the role.
        version (`int`): 0 for a founder (first member of a slot). Every replacement in the slot adds one.
        born_step (`int`): Optimizer step at which this version was created.
        parents (`tuple[str, ...]`): `"name@version"` of the parents, best first. For a founder with an initial
            adapter, its source. Empty for a fresh founder.
        operator (`str`): Evolution operator that made it, or `"founder"`.
        learning_rate (`float`): Peak learning rate of this member's optimizer group.
        temperature (`float`): Sampling temperature as a multiple of the run's; 1 for a founder.

    Raises:
        ValueError: If the learning rate or the temperature is out of range.
    """

    id: str
    role: str
    slot: int
    learning_rate: float
    version: int = 0
    born_step: int = 0
    parents: tuple[str, ...] = ()
    operator: str = "founder"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_range(self.id, self.learning_rate, self.temperature)

    def to_json(self) -> dict:
        """The row of the table as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict) -> "Member":
        """Inverse of `to_json`.

        Raises:
            ValueError: If a value without a default is missing, one is unknown, or learning rate or temperature are
                out of range. Other types are left to [`read_table`].
        """
        try:
            return cls(**{**data, "parents": tuple(data["parents"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"The member {data} cannot be read: {error} Restore {POPULATION_FILE}.") from None


def check_range(name: str, learning_rate: float | None, temperature: float | None) -> None:
    """Refuses a learning rate below 0 and a temperature that is not above 0; `None` is that of the slot."""
    if learning_rate is not None and not 0 <= learning_rate < math.inf:
        raise ValueError(f"learning_rate={learning_rate} of {name!r} must be at least 0 and finite.")
    if temperature is not None and not 0 < temperature < math.inf:
        raise ValueError(f"temperature={temperature} of {name!r} must be above 0 and finite.")


def member_names(num_teachers: int, num_students: int, *, shared: bool = False) -> list[str]:
    """Adapter names of a population, teachers first; `["agent_0"]` when one adapter plays both roles."""
    if shared:
        return ["agent_0"]
    return [f"teacher_{i}" for i in range(num_teachers)] + [f"student_{i}" for i in range(num_students)]


def check_names(names: Iterable[str], path_parts: set[str]) -> None:
    """Refuses names that PEFT would confuse with another adapter or with a part of the model.

    PEFT matches adapters in state dicts by the substring `.name.`, keys them in an `nn.ModuleDict` (no dots) and
    treats `default` and `ref` specially.

    Raises:
        ValueError: If a name is reserved, empty, contains a dot or a slash, starts with `lora`, equals a component of
            a module path of the base model, or occurs twice.
    """
    seen = set()
    for name in names:
        problem = None
        if not name or not name.replace("_", "").replace("-", "").isalnum():
            problem = "use only letters, digits, '_' and '-'"
        elif name in RESERVED_NAMES or name.startswith("lora"):
            problem = "the name is reserved by PEFT or TRL"
        elif name in path_parts:
            problem = "it equals a part of a module path of the base model"
        elif name in seen:
            problem = "it occurs twice"
        if problem:
            raise ValueError(f"Member name {name!r} is not usable: {problem}. Choose another, such as 'student_0'.")
        seen.add(name)

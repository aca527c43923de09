"""Settings that are mappings. Each mapping becomes a dataclass, which defines and checks its keys.

`None` means the defaults. After construction, such a setting contains all its keys, so that the record of a run shows
the values that it used.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..evolution import EvolutionSettings
from ..executor import ExecutorSettings
from ..self_play.rewards import RewardSettings
from ..settings import check_keys, from_mapping, to_mapping
from ..tasks import known_task_types, task_type_class
from ..tasks.registry import BUILT_IN
from .probe_settings import ProbeSettings


class Nested(NamedTuple):
    """The dataclass of a mapping, and those of its fields that are separate settings."""

    record: type
    without: tuple[str, ...] = ()


NESTED = {
    "evolution_kwargs": Nested(EvolutionSettings, without=("interval",)),
    "executor_kwargs": Nested(ExecutorSettings),
    "probe_kwargs": Nested(ProbeSettings),
    "reward_kwargs": Nested(RewardSettings, without=("teacher",)),
}
"""Setting -> its dataclass."""


class Parts:
    """The dataclasses of the mappings.

    A part of [`PopulationSelfPlayConfig`], which holds the mappings.
    """

    if TYPE_CHECKING:  # settings as construction leaves them
        num_teachers: int
        num_students: int
        evolution_interval: int
        evolution_kwargs: dict[str, Any]
        executor_kwargs: dict[str, Any]
        probe_kwargs: dict[str, Any]
        reward_kwargs: dict[str, Any]
        eval_strategy: Any
        hall_of_fame_probability: float
        teacher_reward: str

    @property
    def evolution(self) -> EvolutionSettings | None:
        """Settings of the replacement step, or `None` when evolution is off."""
        if self.evolution_interval == 0:
            return None
        return EvolutionSettings(interval=self.evolution_interval, **self.evolution_kwargs)

    @property
    def islands(self) -> int:
        """Parts of each role that evolve and recombine apart."""
        return self.evolution_kwargs["islands"]

    def check_islands(self) -> None:
        """Raises `ValueError` if a role cannot be divided into the islands, or is too small for an operator."""
        EvolutionSettings(**self.evolution_kwargs).check_sizes(self.num_teachers, self.num_students)

    @property
    def executor(self) -> ExecutorSettings:
        """Settings of the sandbox."""
        return ExecutorSettings(**self.executor_kwargs)

    @property
    def probes(self) -> ProbeSettings:
        """Settings of the probes."""
        return ProbeSettings(**self.probe_kwargs)

    @property
    def is_probed(self) -> bool:
        """Whether the run has probes."""
        return self.eval_strategy != "no"

    @property
    def num_guests(self) -> int:
        """Number of frozen adapters beside the members: for two champions, or for a founder, who uses one of the same
        adapters."""
        founders = self.is_probed and self.num_teachers and self.probes.founders
        return 2 if self.hall_of_fame_probability else int(bool(founders))

    @property
    def rewards(self) -> RewardSettings:
        """Rewards of the outcomes."""
        return RewardSettings(teacher=self.teacher_reward, **self.reward_kwargs)


COMMON = ("style", "num_references")
"""Fields of every task type that a run sets for all of them."""


def complete(args: Any) -> None:
    """Completes every nested setting with all its keys, in place.

    Raises:
        ValueError: With the setting, the key and what it must be.
    """
    for name, nested in NESTED.items():
        setattr(args, name, _complete(nested, getattr(args, name), setting=name))
    args.task_kwargs = _task_kwargs(args)


def _task_kwargs(args: Any) -> dict[str, dict[str, Any]]:
    """Settings of every task type of the run by id, and of other types that are named. A type may have its own
    `COMMON` settings."""
    kinds = {kind.id: kind for kind in map(task_type_class, args.task_types)}
    if not kinds or len(kinds) < len(args.task_types):
        raise ValueError(f"task_types={args.task_types} must name at least one type, and each type once.")
    given = args.task_kwargs or {}
    if places := [name for name in given if ":" in str(name) and name in args.task_types]:
        raise ValueError(
            f"task_kwargs names {places[0]!r} by its place. Write its id, {task_type_class(places[0]).id!r}, there."
        )
    if not set(given) <= {*kinds, *BUILT_IN}:  # what is installed is looked up only if it matters: that takes time
        try:
            check_keys(given, {**kinds, **known_task_types()}, setting="task_kwargs")
        except ValueError as error:
            raise ValueError(
                f"{error} Settings of a type of your own need that type among task_types={args.task_types}: add it "
                "there, or leave its settings out of task_kwargs."
            ) from None
    unrecorded = [name for name, own in given.items() if own is None]
    if unrecorded:
        raise ValueError(
            f"task_kwargs.{unrecorded[0]} is null. A run records this for a type that was made in Python with "
            f"settings that cannot be stored. Pass the type in Python again, task_types=[...], or leave the key out "
            f"for its defaults."
        )
    kinds |= {name: task_type_class(name) for name in given if name not in kinds}
    whole = {}
    for name, kind in kinds.items():
        own = given.get(name)
        without = tuple(one for one in COMMON if not isinstance(own, Mapping) or one not in own)
        whole[name] = _complete(Nested(kind, without), own, setting=f"task_kwargs.{name}")
    return whole


def _complete(nested: Nested, given: Mapping[str, Any] | None, *, setting: str) -> dict[str, Any]:
    if not isinstance(given, Mapping | None):
        raise ValueError(f"{setting}={given!r} must be a mapping, or unset.")
    record = from_mapping(nested.record, given, setting=setting, without=nested.without)
    return to_mapping(record, without=nested.without)

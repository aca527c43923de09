"""Makes a child again from the files of a run."""

import os
from collections.abc import Sequence

from trl_populora.population.adapters import read_adapter
from trl_populora.population.factors import Factors
from trl_populora.run_files.run import read_table

from ..run_files.lineage import EvolutionEvent
from .replacement import remake


def replay(event: EvolutionEvent, folders: Sequence[str | os.PathLike]) -> Factors:
    """Makes the child of an event again from adapters on disk; the result is bit-identical.

    Args:
        event (`EvolutionEvent`): A line of a run's `lineage.jsonl`.
        folders (`Sequence[str]`):
            Populations saved at the event's step, such as the run's `checkpoint-<step>`. Each parent must be in one of
            them, in the version that was the parent. The checkpoint of the same step has all parents that were not
            replaced. For a parent that was replaced in the same event, pass a population that was saved just before.

    Raises:
        ValueError: If a parent is in none of the folders, or the event is an import, whose parent is no member.
    """
    if event.kind == "import":
        raise ValueError(
            f"{event.slot}@{event.version} is a copy of the adapter {event.parents[0][0]}, which is no member of the "
            "run. Read that adapter with read_adapter."
        )
    versions = {os.fspath(folder): _versions(os.fspath(folder)) for folder in folders}
    parents = []
    for name, version in event.parents:
        holders = [folder for folder, table in versions.items() if table.get(name) == version]
        if not holders:
            raise ValueError(
                f"None of {list(versions)} holds {name}@{version}, a parent of {event.slot}@{event.version}. Name a "
                f"population saved at step {event.step}, while it lived."
            )
        parents.append(read_adapter(os.path.join(holders[0], name))[1])
    return remake(event, parents)


def _versions(folder: str) -> dict[str, int]:
    return {row["id"]: row["version"] for row in read_table(folder)["members"]}

"""`initial_adapters`: lets members start from existing adapters, on this machine or on the Hub.

Only the weights are used. Ratings, buffers, learning rates and temperatures start from the beginning. The table of
members and the lineage record the sources.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..evolution import EvolutionEvent
from ..hub.client import HubError, download, head
from ..hub.pulling import Reference, check_adapters
from ..population import Population
from ..population.adapters import misfit, read_adapter
from ..population.factors import not_finite
from ..run_files.layout import ADAPTER_CONFIG_FILE, ADAPTER_FILE, POPULATION_FILE
from ..run_files.run import hub_id, read_record, read_table


logger = logging.getLogger(__name__)

Wanted = Mapping[str, str] | Sequence[str] | str
LOCAL = (".", "/", "~")
"""What names begin with that can only be folders of this machine."""


class Source(NamedTuple):
    """A folder with a population or an adapter.

    Attributes:
        name (`str`): Its name in a recipe; for a repository, with its commit. folder (`str`): Its local folder.
    """

    name: str
    folder: str

    @property
    def versions(self) -> dict[str, int] | None:
        """Members with their versions, if it is a population."""
        if not os.path.isfile(os.path.join(self.folder, POPULATION_FILE)):
            return None
        return {row["id"]: row["version"] for row in read_table(self.folder)["members"]}

    def member(self, name: str) -> "Source":
        return Source(f"{self.name.rstrip('/')}/{name}", os.path.join(self.folder, name))


def find_sources(wanted: Wanted) -> dict[str, Source]:
    """All sources of `initial_adapters`. Those on the Hub are downloaded.

    Args:
        wanted (`str`, `list[str]` or `dict[str, str]`): The setting. It is a population (each member starts from the
            member of the same name), one adapter for all members, a list with a source for each member, teachers
            first, or a mapping from members or roles to sources. A source is a PEFT folder, or
            `user/repo[@revision][/folder]`.

    Raises:
        ValueError: If a source does not exist.
    """
    names = source_names(wanted)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"initial_adapters: {name!r} must be a folder, or user/repo[@revision][/folder].")
    return {name: _find(name) for name in dict.fromkeys(names)}


def source_names(wanted: Wanted) -> list[str]:
    """The sources as they are written in the setting."""
    return [wanted] if isinstance(wanted, str) else [*(wanted.values() if isinstance(wanted, Mapping) else wanted)]


def local_names(wanted: Wanted) -> list[str]:
    """The sources that can only be folders."""
    return [name for name in source_names(wanted) if isinstance(name, str) and name.startswith(LOCAL)]


def warn_of_other_prompts(sources: Mapping[str, Source], settings: Mapping[str, str]) -> None:
    """Warns of sources that have learned from prompts of another `prompt_style` or `prompt_template` than these."""
    for source in sources.values():
        whole = source.folder if source.versions is not None else os.path.dirname(source.folder)
        if os.path.isfile(os.path.join(whole, POPULATION_FILE)):
            learned = read_record(whole).get("settings", {})
            for name, value in settings.items():
                if learned.get(name, value) != value:
                    logger.warning(
                        f"initial_adapters: {source.name} was trained with {name}={learned[name]!r}, and this run's "
                        f"is {value!r}, so its members know other prompts. Set {name} to {learned[name]!r}."
                    )


def start_from(population: Population, wanted: Wanted, sources: Mapping[str, Source], *, base: str) -> None:
    """Loads the weights of `initial_adapters` into the members.

    Args:
        population ([`Population`]): Fresh members.
        wanted (`str`, `list[str]` or `dict[str, str]`): The setting, as in [`find_sources`].
        sources (`Mapping[str, Source]`): The result of [`find_sources`].
        base (`str`): Name of the run's base model. An adapter that names another base causes a warning.

    Raises:
        ValueError: If a source is damaged, is not finite or does not fit. The message has the settings that would fit.
    """
    for name, (source, version) in _assign(population, wanted, sources).items():
        config, factors = read_adapter(source.folder)
        if problem := misfit(config, factors, population.factors(name)):
            raise ValueError(f"initial_adapters: {source.name} does not fit {name}: {problem}")
        if not_finite(factors):
            raise ValueError(f"initial_adapters: {source.name} has diverged: it has weights that are not finite.")
        other = config.base_model_name_or_path
        if other and hub_id(other) and hub_id(base) and other != base:
            logger.warning(f"initial_adapters: {source.name} was trained on {other}, and this run's base is {base}.")
        population.write(name, factors)
        population.restore(replace(population[name], parents=(f"{source.name}@{version}",)))


def import_events(population: Population) -> list[EvolutionEvent]:
    """Lineage events for founders with initial adapters. They have no ratings yet, so both are `(0, 0)`."""
    events = []
    for member in population.values():
        for parent in member.parents:
            name, _, version = parent.rpartition("@")
            born = {"step": member.born_step, "version": member.version, "role": member.role}
            ratings = {"fitness": {}, "rating_before": (0.0, 0.0), "rating_after": (0.0, 0.0)}
            made = {"operator": "clone", "parameters": {"seed": 0}, "parents": ((name, int(version)),)}
            events.append(EvolutionEvent(slot=member.id, kind="import", **born, **made, **ratings))
    return events


def _assign(population: Population, wanted: Wanted, sources: Mapping[str, Source]) -> dict[str, tuple[Source, int]]:
    """Member -> its source and its version there."""
    members = list(population)
    if isinstance(wanted, str):
        whole = sources[wanted]
        versions = whole.versions
        if versions is None:
            return dict.fromkeys(members, _adapter(members[0], whole))
        if missing := [name for name in members if name not in versions]:
            raise ValueError(
                f"initial_adapters={wanted!r} has no {', '.join(missing)}: it holds {', '.join(versions)}. Name a "
                "source for each member in a mapping, or set num_teachers and num_students to those it has."
            )
        return {name: (whole.member(name), versions[name]) for name in members}
    if isinstance(wanted, Mapping):
        roles = {role: population.names(role) for role in ("teacher", "student")}
        if unknown := [key for key in wanted if key not in population and not roles.get(key)]:
            present = ", ".join(role for role, names in roles.items() if names)
            raise ValueError(
                f"initial_adapters names {', '.join(map(repr, unknown))}: keys are members ({', '.join(members)})"
                + (f" or roles ({present})." if present else ".")
            )
        chosen = {name: wanted[role] for role, names in roles.items() if role in wanted for name in names}
        chosen |= {name: wanted[name] for name in members if name in wanted}
    else:
        if len(wanted) != len(members):
            raise ValueError(
                f"initial_adapters lists {len(wanted)} sources for {len(members)} members ({', '.join(members)}). "
                "List one for each, or map members to sources."
            )
        chosen = dict(zip(members, wanted))
    return {name: _adapter(name, sources[source]) for name, source in chosen.items()}


def _adapter(name: str, source: Source) -> tuple[Source, int]:
    """The adapter of a source for a member: the source itself, or the member of that name in a population."""
    versions = source.versions
    if versions is None:
        above, _, own = source.name.rpartition("/")
        table = os.path.join(os.path.dirname(os.path.abspath(source.folder)), POPULATION_FILE)
        rows = read_table(os.path.dirname(table))["members"] if above and os.path.isfile(table) else ()
        return source, next((row["version"] for row in rows if row["id"] == own), 0)
    if name not in versions:
        raise ValueError(
            f"initial_adapters: {source.name} is a population without {name}. Name one of its members: "
            f"{', '.join(f'{source.name}/{one}' for one in versions)}."
        )
    return source.member(name), versions[name]


def _find(name: str) -> Source:
    """A local folder, or else files from the Hub in its cache."""
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        plain = name.rstrip("/")
        bare = not (plain.startswith(LOCAL) or "/" in plain)
        return Source(f"./{plain}" if bare else plain, path)  # a lineage would take `student_0` for its own
    if name.startswith(LOCAL):
        raise ValueError(f"initial_adapters={name!r}: there is no such folder.")
    try:
        reference = Reference.parse(name)
    except ValueError as error:
        raise ValueError(f"initial_adapters: {error}") from None
    try:
        commit, _ = head(reference.repo_id, revision=reference.revision)
    except HubError as error:
        raise ValueError(f"initial_adapters={name!r}: there is no such folder, and on the Hub: {error}") from None
    below = f"{reference.folder}/" if reference.folder else ""
    files = (POPULATION_FILE, ADAPTER_CONFIG_FILE, ADAPTER_FILE)
    patterns = [f"{below}{place}{file}" for file in files for place in ("", "*/")] + [POPULATION_FILE]
    folder = os.path.join(download(reference.repo_id, patterns=patterns, revision=commit), reference.folder)
    source = str(reference._replace(revision=commit))
    try:
        check_adapters(folder)
    except ValueError as error:
        raise ValueError(f"initial_adapters: {source} is neither a population nor an adapter: {error}") from None
    return Source(source, folder)

"""Pushing: a population, one member of it, or the tables of its rounds, from a run's folder to a repository."""

import logging
import os
import re
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.utils import HFValidationError, validate_repo_id

from ..command import populora
from ..reporting.dataset_card import dataset_card
from ..reporting.model_card import model_card, results_of
from ..run_files.checkpoint import find_defect, whole_checkpoints
from ..run_files.files import kept
from ..run_files.layout import CARD_FILE, LAST_CHECKPOINT, PLOTS_FOLDER, POPULATION_FILE, PROBES_FOLDER, ROUNDS_FOLDER
from ..run_files.run import Run, hub_id, open_run, read_record, read_table
from .client import Contents, HubError, Kind, card_metadata, commit, license_of, open_repository
from .contents import OF_A_RUN, checkpoint_contents, member_contents, population_contents, table_contents


logger = logging.getLogger(__name__)

MEMBERS = re.compile(r"(teacher|student|agent)_\d+")
KEPT = ("license", "license_name", "license_link", "language", "datasets", "tags", "pipeline_tag")
"""Metadata that stays as its owner has edited it on the Hub, where the card itself says nothing else."""


@dataclass(kw_only=True)
class Push:
    """A prepared upload. It sends the content that the files had at its creation, even if it is sent later.

    Attributes:
        repo_id (`str`): Repository, with or without a namespace. kind (`str`): Kind of the repository.
        contents (`Contents`): All files but the card. card (`Callable`): Text of the card, from the repository's full
            id and the metadata that it has there.
        again (`str`): What a user can do if it fails. owned (`Callable`): Returns for the path of a file whether it is
            deleted if it is not in `contents`. private, token, revision: As in [`push_population`].
    """

    repo_id: str
    contents: Contents
    card: Callable[[str, Mapping[str, Any]], str]
    again: str
    kind: Kind = "model"
    message: str
    owned: Callable[[str], bool]
    private: bool | None = None
    token: str | None = None
    revision: str | None = None
    _files: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        try:
            validate_repo_id(self.repo_id)
        except HFValidationError as error:
            raise ValueError(f"{self.repo_id!r} cannot be a repository: {error}") from None

    def keep(self, folder: str) -> "Push":
        """Keeps the present content of the files in `folder` until they are sent."""
        paths = [content for content in self.contents.values() if isinstance(content, str)]
        found = self._files.enter_context(kept(paths, folder))
        self.contents = {
            name: found[content] if isinstance(content, str) else content for name, content in self.contents.items()
        }
        return self

    def send(self) -> str:
        """Uploads, in one commit; returns its address.

        Raises:
            HubError: If the upload fails, with the command that repeats it. Then nothing has changed, locally or on
            the Hub.
        """
        whose = {"kind": self.kind, "token": self.token}
        try:
            with self._files:
                repo_id = open_repository(self.repo_id, private=self.private, revision=self.revision, **whose)
                there = card_metadata(repo_id, revision=self.revision, **whose)
                text = self.card(repo_id, {key: there[key] for key in KEPT if there.get(key)})
                contents = {**self.contents, CARD_FILE: text.encode()}
                details = {"message": self.message, "owned": self.owned, "revision": self.revision}
                return commit(repo_id, contents, **details, **whose)
        except HubError as error:
            raise HubError(f"{error} Nothing is lost. {self.again}", final=error.final) from error

    def send_later(self) -> "Future[str | None]":
        """Uploads in the background, after running uploads. A failure causes a warning and gives `None`."""

        def send() -> str | None:
            try:
                return self.send()
            except HubError as error:
                logger.warning(str(error))
                return None

        return HfApi().run_as_future(send)


def push_population(
    folder: str,
    to: str | None = None,
    *,
    base: str | None = None,
    about: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    place: str = LAST_CHECKPOINT,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    message: str = "Population of adapters",
) -> Push:
    """Prepares the upload of a population, with one folder per member.

    Args:
        folder (`str`): Run folder or checkpoint.
        to (`str`, *optional*): Repository; the run folder's name in your own namespace if unset.
        base (`str`, *optional*): Name of the base model, if it is not the recorded one.
        about (`Mapping`, *optional*): Facts for the card, as in [`model_card`]; those of `run.json` if unset.
        checkpoint (`str`, *optional*): Folder of a complete checkpoint to upload, too, with optimizer and random
            states.
        place (`str`, *optional*, defaults to `"last-checkpoint"`): Name of the checkpoint in the repository.
        private (`bool`, *optional*): Whether the repository must be private.
        token (`str`, *optional*): Token that may write; the one you are logged in with if unset.
        revision (`str`, *optional*): Branch.
        message (`str`, *optional*): Title of the commit.

    Raises:
        ValueError: If the folder has no complete population or checkpoint.
    """
    run = _open(folder, base)
    name = to or _name(run)
    contents = dict(population_contents(run))
    if checkpoint:
        if problem := find_defect(checkpoint, content=True):
            raise ValueError(f"{checkpoint} is not a complete checkpoint: {problem}.")
        contents |= checkpoint_contents(checkpoint, place)
    folders = {PLOTS_FOLDER, *([place] if checkpoint else ())}

    def owned(path: str) -> bool:
        top, inside, _ = path.partition("/")
        return path in OF_A_RUN or bool(inside) and (top in folders or bool(MEMBERS.fullmatch(top)))

    as_command = bool(checkpoint) and place == LAST_CHECKPOINT  # the only place that the command has
    options = {"--checkpoint": as_command, "--private": private, "--revision": revision, "--base": base}
    return Push(
        repo_id=name,
        contents=contents,
        card=_card_maker(run, about, token=token),
        again=_repeat(folder, name, options),
        message=message,
        owned=owned,
        private=private,
        token=token,
        revision=revision,
    ).keep(run.record)


def push_member(
    folder: str,
    member: str,
    to: str | None = None,
    *,
    base: str | None = None,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
) -> Push:
    """Prepares the upload of one member, with its adapter at the root. Arguments as in [`push_population`].

    Raises:
        ValueError: If there is no such member, or its adapter is incomplete.
    """
    run = _open(folder, base)
    check_member(run, member)
    name = to or f"{_name(run)}-{member}"
    options = {"--member": member, "--private": private, "--revision": revision, "--base": base}
    return Push(
        repo_id=name,
        contents=member_contents(run, member),
        card=_card_maker(run, {**recorded(run), "member": member}, token=token),
        again=_repeat(folder, name, options),
        message=f"Adapter {member}",
        owned=lambda path: False,
        private=private,
        token=token,
        revision=revision,
    ).keep(run.record)


def push_dataset(
    folder: str,
    to: str | None = None,
    *,
    base: str | None = None,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
) -> Push:
    """Prepares the upload of the tables of a run's rounds as a dataset. Arguments as in [`push_population`].

    Raises:
        ValueError: If the run has no tables.
    """
    tables = table_contents(folder)
    record = read_record(folder)
    names: dict[str, Any] = {"base": base or record.get("model"), "hub_base": hub_id(base) if base else None}
    names["self_play"] = record.get("settings", {}).get("num_teachers") != 0
    if not base and record.get("model_on_hub"):
        names["hub_base"] = names["base"]
    options = {"--dataset": True, "--private": private, "--revision": revision, "--base": base}
    name = to or f"{os.path.basename(os.path.abspath(folder))}-rounds"
    return Push(
        repo_id=name,
        contents={f"{place}/{os.path.basename(path)}": path for place, paths in tables.items() for path in paths},
        card=lambda repo_id, there: dataset_card(tables, repo_id=repo_id, **names, metadata=there),
        again=_repeat(folder, name, options),
        kind="dataset",
        message="Rounds of a population",
        owned=lambda path: path.startswith((f"{ROUNDS_FOLDER}/", f"{PROBES_FOLDER}/")),
        private=private,
        token=token,
        revision=revision,
    ).keep(folder)


def check_member(run: Run, member: str) -> None:
    """Raises `ValueError` if the run has no such member."""
    if member not in run.members:
        raise ValueError(f"{run.folder} has no member {member!r}; choose from {', '.join(run.members)}.")


def recorded(run: Run) -> dict[str, Any]:
    """Facts for the card that a run has recorded."""
    record = read_record(run.record)
    dataset = record.get("dataset")
    if dataset and record.get("dataset_on_hub") is False:  # what is elsewhere has another meaning
        dataset = os.path.join(os.curdir, dataset)
    about = {"dataset": dataset, "versions": record.get("versions"), "rewards": record.get("reward_funcs", ())}
    return {**about, "settings": run.settings, "revision": run.revision}


def results(run: Run) -> dict[str, Any]:
    """Results for the card of a run, or of a checkpoint in it."""
    return results_of(run.record, until=None if run.record == run.folder else run.step)


def _open(folder: str, base: str | None) -> Run:
    """Opens a run. If it has not finished, the error names the checkpoint to push."""
    checkpoints = whole_checkpoints(folder)
    if checkpoints and not os.path.isfile(os.path.join(folder, POPULATION_FILE)):
        raise ValueError(f"{folder} has not finished: push its newest checkpoint, {checkpoints[-1]}.")
    return open_run(folder, base=base)


def _card_maker(
    run: Run, about: Mapping[str, Any] | None, *, token: str | None
) -> Callable[[str, Mapping[str, Any]], str]:
    """The card as of now, but for what only the Hub can tell."""
    table = read_table(run.folder)
    facts = {**results(run), **(recorded(run) if about is None else about)}
    facts |= {"base_model": run.base, "hub_base": run.hub_base}
    tags = list(facts.pop("tags", ()))

    def make(repo_id: str, there: Mapping[str, Any]) -> str:
        base = run.hub_base
        known = {**(license_of(base, token=token) if base and "license" not in there else {}), **there}
        kept_tags = [tag for tag in known.pop("tags", ()) if tag not in tags]
        return model_card(table, repo_id=repo_id, tags=[*tags, *kept_tags], metadata=known, **facts)

    return make


def _name(run: Run) -> str:
    return os.path.basename(os.path.abspath(run.record))


def _repeat(folder: str, to: str, options: Mapping[str, object]) -> str:
    """How to push again: the `populora push` that does the same."""
    words = ["push", folder, "--to", to]
    for name, value in options.items():
        if value:
            words += [name] if value is True else [name, str(value)]
    return f"To push again: {populora()} {shlex.join(words)}"

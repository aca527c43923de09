"""Downloads a shared population or adapter from a repository into a folder that every command can open."""

import glob
import os
import re
import shutil
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..run_files.files import is_free, move_folder, read_json, write_files
from ..run_files.layout import (
    ADAPTER_CONFIG_FILE,
    ADAPTER_FILE,
    CHECKPOINT_PREFIX,
    LAST_CHECKPOINT,
    POPULATION_FILE,
    STAGING_FOLDER,
    TRAINER_STATE_FILE,
    checkpoint_folder,
)
from ..run_files.run import read_table
from .client import HubError, download, head
from .contents import check_weights


READ = (".json", ".jsonl", ".md", ".png", ".jinja", ".txt", ".model", os.path.splitext(ADAPTER_FILE)[1])
"""Endings of files that are data. Pickle files are downloaded only with `--checkpoint`."""
MEMBER_NAME = re.compile(r"[\w-]+")


class Reference(NamedTuple):
    """A repository or a folder in it: `"user/repo[@revision][/folder]"`. A slash in the name of a branch is `%2F`."""

    repo_id: str
    revision: str | None
    folder: str

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """From text, with or without `hf://` before it.

        Raises:
            ValueError: If it names no repository.
        """
        found = re.fullmatch(
            r"(?:hf://)?(\w[\w.-]*/\w[\w.-]*)(?:@(refs/(?:pr|convert)/\w+|[\w.%-]+))?(?:/(.+?))?/?", text
        )
        folder = (found[3] or "") if found else ""
        if found is None or ".." in folder.split("/"):
            raise ValueError(
                f"{text!r} is neither a folder nor a repository on the Hub: user/repo[@revision][/folder]."
            )
        return cls(found[1], found[2] and unquote(found[2]), folder)

    def __str__(self) -> str:
        revision = self.revision and quote(self.revision, safe="/" if self.revision.startswith("refs/") else "")
        return self.repo_id + (f"@{revision}" if revision else "") + (f"/{self.folder}" if self.folder else "")


def pull(source: str, output: str, *, checkpoint: bool = False, token: str | None = None) -> str:
    """Downloads a population or an adapter into a new folder.

    Args:
        source (`str`): `"user/repo[@revision][/folder]"`; with a folder, such as a member's, only that folder.
        output (`str`): Folder to create. It may exist if it is empty.
        checkpoint (`bool`, *optional*, defaults to `False`): Whether to download checkpoints, too. They contain pickle
            files: load them only from people whom you trust. `last-checkpoint` becomes `checkpoint-N`, as in the
            folder of the run, so `resume_from_checkpoint: auto` finds it.
        token (`str`, *optional*): Token that may read; the one you are logged in with if unset.

    Returns:
        `str`: The downloaded source, as `"user/repo@commit[/folder]"`.

    Raises:
        ValueError: If `output` is not empty, or the repository has neither a population nor an adapter.
    """
    reference = Reference.parse(source)
    if not is_free(output):
        raise ValueError(f"{output!r} is not empty. Choose another folder.")
    commit, paths = head(reference.repo_id, revision=reference.revision, token=token)
    below = f"{reference.folder}/" if reference.folder else ""
    if not {f"{below}{POPULATION_FILE}", f"{below}{ADAPTER_CONFIG_FILE}"} & set(paths):
        raise HubError(f"{reference} holds neither a population nor an adapter: {POPULATION_FILE} is missing.")

    def wanted(path: str) -> bool:
        inner = path.removeprefix(below)
        if not path.startswith(below) or STAGING_FOLDER in inner.split("/"):
            return False
        if checkpoint and _is_checkpoint(path):
            return True
        return path.endswith(READ) and not _is_checkpoint(inner)

    def write(aside: str) -> None:
        patterns = [glob.escape(path) for path in paths if wanted(path)]
        cached = download(reference.repo_id, patterns=patterns, revision=commit, token=token)
        for path in filter(wanted, paths):  # earlier downloads may have left more there
            target = os.path.join(aside, path.removeprefix(below))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(cached, path), target)
        try:
            _number_checkpoint(aside)
            check_adapters(aside)
        except ValueError as error:  # what was downloaded is removed: name it where it still is
            raise ValueError(str(error).replace(aside, str(reference))) from None

    try:
        write_files(output, write)
    except BaseException:
        with suppress(OSError):  # if it was there and empty, it may stay or go
            os.rmdir(output)
        raise
    return str(reference._replace(revision=commit))


def _number_checkpoint(folder: str) -> None:
    last = os.path.join(folder, LAST_CHECKPOINT)
    if not os.path.isdir(last):
        return
    state = read_json(os.path.join(last, TRAINER_STATE_FILE), missing="the checkpoint is incomplete. Ask its author.")
    step = state.get("global_step")
    if type(step) is int and step > 0 and not os.path.exists(checkpoint_folder(folder, step)):
        move_folder(last, checkpoint_folder(folder, step))


def _is_checkpoint(path: str) -> bool:
    """Whether a path in a repository is one of a checkpoint's."""
    top = path.split("/")[0]
    return top == LAST_CHECKPOINT or top.startswith(CHECKPOINT_PREFIX)


def check_adapters(folder: str) -> None:
    """Checks that a folder of the Hub is a population with all its adapters, or an adapter.

    Raises:
        ValueError: If a file is missing or damaged, or the name of a member is invalid.
    """
    if os.path.isfile(os.path.join(folder, POPULATION_FILE)):
        names = [str(row["id"]) for row in read_table(folder)["members"]]
        if wrong := [name for name in names if not MEMBER_NAME.fullmatch(name)]:
            raise ValueError(f"{POPULATION_FILE} has members with invalid names: {wrong}. Ask its author.")
        places = [os.path.join(folder, name) for name in names]
    else:
        places = [folder]
    for place in places:
        read_json(os.path.join(place, ADAPTER_CONFIG_FILE), missing="the adapter is incomplete. Ask its author.")
        if not os.path.isfile(os.path.join(place, ADAPTER_FILE)):
            raise ValueError(f"{place} has no {ADAPTER_FILE}. Ask its author to push it again.")
        check_weights(os.path.join(place, ADAPTER_FILE))

"""Checkpoints are complete or do not exist: they are written aside, listed in a manifest, and moved into place by one
rename."""

import logging
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache

from .. import __version__  # not from the metadata: a checkout need not be installed
from .files import files_below, move_folder, read_json, write_json
from .layout import MANIFEST_FILE, STAGING_FOLDER, checkpoint_folder, checkpoints


logger = logging.getLogger(__name__)

FORMAT_VERSION = 3
WRITE_ERRORS = (OSError, RuntimeError)  # torch wraps what the file system says


def write_checkpoint(
    write: Callable[[], None],
    *,
    output_dir: str,
    step: int,
    is_main: bool,
    problems: Callable[[str | None], list[str]],
    about: Mapping,
    save_total_limit: int | None = None,
) -> bool:
    """Writes `checkpoint-<step>`, completely or not at all.

    Args:
        write (`Callable`): Writes this rank's files into `checkpoint-<step>` below the staging folder of `output_dir`.
        output_dir (`str`): Folder of the run.
        step (`int`): Training step.
        is_main (`bool`): Whether this rank writes the manifest. All ranks must call this function.
        problems (`Callable`): Sends this rank's errors to all ranks, and returns the errors of all ranks.
        about (`Mapping`): Additional content of the manifest, besides the files with their sizes and checksums.
        save_total_limit (`int`, *optional*): Number of checkpoints to keep. Older ones are deleted after the new one
            is complete.

    Returns:
        `bool`: Whether it was written. If not (full disk, missing folder), a warning gives the reason, incomplete
        files are removed, and earlier checkpoints do not change. Training can continue, and the next save tries again.
    """
    staging = os.path.join(output_dir, STAGING_FOLDER)
    source, target = (checkpoint_folder(folder, step) for folder in (staging, output_dir))
    if is_main:
        shutil.rmtree(staging, ignore_errors=True)
    problems(None)  # nobody writes before that is done
    failed = problems(_problem(write))
    if not failed:
        failed = problems(_problem(lambda: _seal(source, target, about)) if is_main else None)
    if is_main:
        shutil.rmtree(staging, ignore_errors=True)
        if failed:
            logger.warning(
                f"Step {step} was not saved to {target}: {'; '.join(failed)}. Training continues; earlier "
                f"checkpoints are unchanged, and the next save tries again. Free some space or repair the folder."
            )
        elif save_total_limit:
            for folder in checkpoints(output_dir)[:-save_total_limit]:
                shutil.rmtree(folder, ignore_errors=True)
    return not failed


def whole_checkpoints(output_dir: str) -> list[str]:
    """Checkpoints in a folder that hold all their files, oldest first."""
    return [folder for folder in checkpoints(output_dir) if find_defect(folder) is None]


def newest_checkpoint(output_dir: str) -> str | None:
    """The newest checkpoint in a folder that holds all its files, if any."""
    return next(reversed(whole_checkpoints(output_dir)), None)


def find_defect(folder: str, *, content: bool = False) -> str | None:
    """Why a folder is not a complete checkpoint of a population, in words; `None` if it is one.

    Args:
        folder (`str`): The checkpoint.
        content (`bool`, *optional*, defaults to `False`): Read all files and compare their checksums, too.
    """
    if not os.path.isdir(folder):
        return "it is a file" if os.path.isfile(folder) else "there is no such folder"
    try:
        manifest = _manifest(folder)
        if manifest["format"] != FORMAT_VERSION:
            return (
                f"it has format {manifest['format']!r}, and this version reads format {FORMAT_VERSION}. The version "
                f"that wrote it can resume it; its members can be evaluated and exported"
            )
        files = {name: (size, checksum) for name, (size, checksum) in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if not os.path.exists(os.path.join(folder, MANIFEST_FILE)):
            return f"{MANIFEST_FILE} is missing: the checkpoint is incomplete, or not one of a population"
        return f"{MANIFEST_FILE} cannot be read ({error!r})"
    for name, (size, checksum) in files.items():
        path = os.path.join(folder, name)
        try:
            if not os.path.isfile(path):
                return f"{name} is missing"
            if (found := os.path.getsize(path)) != size:
                return f"{name} has {found} bytes instead of {size}"
            if content and _checksum(path, os.stat(path).st_ctime_ns) != checksum:
                return f"{name} was changed after it was saved, or the disk has damaged it"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


def files_of(folder: str) -> list[str]:
    """Names of the files of a complete checkpoint, with the manifest."""
    return [*_manifest(folder)["files"], MANIFEST_FILE]


def find_checkpoint(wanted: str | bool | None, output_dir: str) -> str | None:
    """The checkpoint to resume from. It reads every file of those that it looks at.

    Args:
        wanted (`str` or `bool`, *optional*):
            A folder; `"auto"` for the newest complete checkpoint of `output_dir`, if any; `True` for the newest one,
            which must exist; `None` or `False` for none.
        output_dir (`str`): Folder of the run.

    Raises:
        ValueError: If it is incomplete, with the newest complete one in the message; or if none is complete.
    """
    if wanted is None or wanted is False:
        return None
    if wanted is True or wanted == "auto":
        defects = {}
        for folder in reversed(checkpoints(output_dir)):
            defects[folder] = find_defect(folder, content=True)
            if defects[folder] is None:
                for other in list(defects)[:-1]:
                    logger.warning(f"{other} is passed over, because it is not complete: {defects[other]}.")
                return folder
        if defects:  # starting from the beginning would delete them
            newest, defect = next(iter(defects.items()))
            raise ValueError(
                f"{newest!r} is not a complete checkpoint of a population: {defect}. No other "
                f"one is complete. To start from the beginning, choose another output_dir, or remove this one if "
                f"nothing in it is needed."
            )
        if wanted is True:
            raise ValueError(f"{output_dir!r} holds no complete checkpoint. Start without resume_from_checkpoint.")
        return None
    if problem := find_defect(wanted, content=True):
        beside = reversed(checkpoints(os.path.dirname(os.path.abspath(wanted))))
        other = next((folder for folder in beside if find_defect(folder, content=True) is None), None)
        offer = f" The newest complete one is {other}: resume from that." if other else ""
        offer += "" if os.path.isdir(wanted) else " Name the folder of a checkpoint, or `auto` for the newest one."
        problem = f"{wanted!r} is not a complete checkpoint of a population: {problem}.{offer}"
        raise ValueError(f"resume_from_checkpoint={problem}")
    return wanted


def check_origin(checkpoint: str, *, base: str, fixed: Mapping) -> None:
    """Checks that a run can resume from a checkpoint: same base model, by its fingerprint, and same `fixed` settings.

    Raises:
        ValueError: If the checkpoint has different ones.
    """
    saved = _manifest(checkpoint)
    before = saved.get("fixed", {})
    problems = [f"{n}={before[n]!r}, not {v!r}" for n, v in fixed.items() if n in before and before[n] != v]
    if saved.get("base") != base and not problems:
        problems = [f"another base model (fingerprint {saved.get('base')}; this one has {base})"]
    if problems:
        raise ValueError(f"Cannot resume from {checkpoint!r}: it was saved with {', with '.join(problems)}.")


@lru_cache(maxsize=1024)
def _checksum(path: str, changed: int) -> int:
    """CRC-32 of a file that was `changed` at this time: a start looks at the same checkpoint several times."""
    found = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found = zlib.crc32(part, found)
    return found


def _manifest(folder: str) -> dict:
    return read_json(os.path.join(folder, MANIFEST_FILE), missing="it is no checkpoint.")


def _problem(action: Callable[[], None]) -> str | None:
    try:
        action()
    except WRITE_ERRORS as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return None


def _seal(source: str, target: str, about: Mapping) -> None:
    """Lists all files with their sizes and checksums, and moves the folder into place."""
    files = {
        os.path.relpath(path, source): (os.path.getsize(path), _checksum(path, os.stat(path).st_ctime_ns))
        for path in files_below(source)
    }
    manifest = {"format": FORMAT_VERSION, "trl_populora": __version__, **about, "files": files}
    write_json(os.path.join(source, MANIFEST_FILE), manifest)
    move_folder(source, target)  # there may be one that was torn, or left by a run resumed from an earlier one

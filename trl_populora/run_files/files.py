"""Writes files such that a kill, a crash or a full disk leaves either the old or the new file; and reads them.

When a function returns, the file is on disk. Staging folders are an exception: their files are flushed together,
before they are moved out.
"""

import codecs
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO, Any, TypeVar

from safetensors import SafetensorError

from ..output import is_first_rank
from .layout import SCRATCH_SUFFIX, STAGING_FOLDER, UPLOAD_PREFIX, uploads


Record = TypeVar("Record")
WRITE_CHECK_PREFIX = ".writable-"  # of the file that shows whether a folder can be written
WRITE_CHECK_SECONDS = 60  # after which such a file is no living process's
UPLOAD_SECONDS = 24 * 3600  # the same for folders of uploads
COLUMNS = {str: "string", int: "int64", float: "float64", bool: "bool"}
# Each value of a column is stored once, and rows refer to it: prompts and tasks repeat.
PACKING = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 26}
_HELD: set[tuple[int, str]] = set()  # process and folder of each `alone` that this process is in


def write_file(path: str | os.PathLike, content: bytes | str | Callable[[str], object]) -> None:
    """Writes a file completely or not at all: aside, flushed, renamed, and its folder flushed. Of several processes
    that write it at the same time, one leaves its content.

    Args:
        path (`str`): Path of the file. Folders are created, and an existing file is replaced.
        content (`bytes`, `str` or `Callable`): The content, or a function that writes it to the path that it gets.

    Raises:
        OSError: If it cannot be written; the old file does not change. Also exceptions of `content`.
        ValueError: If the path is a device or a pipe, which would be replaced by a file.
    """
    path = os.fspath(path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(f"{path} is neither a file nor a folder: writing would replace it. Name a file.")
    folder, scratch = os.path.dirname(path) or os.curdir, f"{path}.{secrets.token_hex(4)}{SCRATCH_SUFFIX}"
    os.makedirs(folder, exist_ok=True)
    try:
        with _file_named(path):
            if callable(content):
                content(scratch)
            else:
                with open(scratch, "wb") as file:
                    file.write(content.encode() if isinstance(content, str) else content)
            _flush([scratch], place=folder)
            os.replace(scratch, path)
    except BaseException:
        with suppress(OSError):
            os.remove(scratch)
        raise
    _flush([folder], place=folder)


def write_files(folder: str | os.PathLike, write: Callable[[str], object]) -> None:
    """Lets a function write files into a temporary folder, and moves each into its place when all are complete.

    Raises:
        OSError: If they cannot be written. Also exceptions of `write`; then the old files do not change.
    """
    folder = os.fspath(folder)
    aside = os.path.join(folder, STAGING_FOLDER)
    shutil.rmtree(aside, ignore_errors=True)
    os.makedirs(aside)
    try:
        with _file_named(folder):
            write(aside)
        sources = files_below(aside)
        _flush(sources, place=folder)
        targets = [os.path.join(folder, os.path.relpath(source, aside)) for source in sources]
        for source, target in zip(sources, targets, strict=True):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    _flush({folder, *map(os.path.dirname, targets)}, place=folder)


def check_writable(folder: str, *, option: str) -> None:
    """Creates a folder if it is missing. Raises a `ValueError` with the option's name if it is not writable."""
    try:
        folder.encode()
    except UnicodeEncodeError:  # other libraries could not write there
        raise ValueError(f"{option}={folder!r} is not a name in UTF-8. Choose another.") from None
    probe = os.path.join(folder, f"{WRITE_CHECK_PREFIX}{os.getpid()}")
    try:
        _remove_old_checks(folder)
        write_file(probe, b"")
        os.remove(probe)
    except OSError as error:
        raise ValueError(f"{option}={folder!r} cannot be written: {error.strerror}. Choose another.") from None


def _remove_old_checks(folder: str) -> None:
    """Removes what a process that was killed in `check_writable` has left."""
    for entry in os.scandir(folder) if os.path.isdir(folder) else ():
        with suppress(OSError):
            if entry.name.startswith(WRITE_CHECK_PREFIX) and time.time() - entry.stat().st_mtime > WRITE_CHECK_SECONDS:
                os.remove(entry.path)


def is_free(folder: str) -> bool:
    """Whether a folder can be made or filled: it does not exist, or holds nothing but what a killed write has left."""
    return not os.path.exists(folder) or os.path.isdir(folder) and set(os.listdir(folder)) <= {STAGING_FOLDER}


@contextmanager
def gone_if_unused(folder: str, used: Callable[[], bool]) -> Iterator[None]:
    """Context that removes a folder at its end, if the folder did not exist before and was not `used`.

    Parent folders that were created for it are removed, too. Only the process of rank 0 removes folders.
    """
    made = [folder := os.path.abspath(folder)]
    while not os.path.isdir(os.path.dirname(made[-1])):
        made.append(os.path.dirname(made[-1]))
    new = not os.path.exists(folder) and is_first_rank()
    try:
        yield
    finally:
        if new and not used():
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # somebody else's file is in one
                for path in made[1:]:
                    os.rmdir(path)


@contextmanager
def _file_named(path: str | os.PathLike) -> Iterator[None]:
    """Context in which an error of a write names the path, as one on a full disk does not; and in which that of
    safetensors is an `OSError`."""
    try:
        yield
    except SafetensorError as error:
        code = re.search(r"os error (\d+)", str(error))
        known = (int(code[1]), os.strerror(int(code[1]))) if code else (errno.EIO, str(error))
        raise OSError(*known, os.fspath(path)) from None
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = os.fspath(path)
        raise


def write_json(path: str | os.PathLike, data: object, *, indent: int | None = 1) -> None:
    write_file(path, json.dumps(data, indent=indent) + "\n")


def write_lines(path: str | os.PathLike, records: Iterable[Mapping]) -> None:
    """Writes a file of JSON lines and replaces an old one."""
    write_file(path, _lines(records))


def append_lines(path: str | os.PathLike, records: Iterable[Mapping]) -> None:
    """Appends JSON lines to a file, all of them or none.

    Raises:
        OSError: If they cannot be written; the file is then as it was.
    """
    folder, lines = os.path.dirname(path) or os.curdir, _lines(records)
    os.makedirs(folder, exist_ok=True)
    with _file_named(path), open(path, "ab", buffering=0) as file:
        end = file.tell()
        try:
            while lines:
                lines = lines[file.write(lines) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)
            raise
    if not end:
        _flush([folder], place=folder)


def open_log(path: str) -> IO[bytes] | None:
    """A log file for the output of processes. It is locked as long as one of these processes lives.

    Returns:
        `IO[bytes]` or `None`: `None` if other processes have locked it.
    """
    os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
    file = open(path, "ab", buffering=0)  # noqa: SIM115 - its processes close it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # some network file systems have no such locks
        pass
    return file


@contextmanager
def alone(folder: str) -> Iterator[None]:
    """Context in which no other process is in this context for the same folder.

    The lock is on the folder itself, and ends with the process and those that it has forked meanwhile. Some network
    file systems have no such locks; there, it is not checked.

    Raises:
        ValueError: If another one is.
    """
    held = (os.getpid(), os.path.realpath(folder))
    if held in _HELD:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"output_dir={folder!r}: another run trains there. Wait for its end, or choose another folder."
                ) from None
        _HELD.add(held)
        yield
    finally:
        _HELD.discard(held)
        if os.getpid() == held[0]:  # not in a fork, which would unlock its parent's
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # forks may still have it open
        os.close(descriptor)


def is_taken(folder: str) -> bool:
    """Whether another process is in [`alone`] for a folder."""
    try:
        with alone(folder):
            return False
    except ValueError:
        return True
    except OSError:  # it does not exist, or cannot be opened
        return False


def write_table(path: str | os.PathLike, rows: Sequence[Mapping], columns: Mapping[str, type]) -> None:
    """Writes rows as Parquet. `columns` are names and types (`str`, `int`, `float`, `bool`); `None` is null."""
    import pyarrow
    import pyarrow.parquet

    texts = [name for name, kind in columns.items() if kind is str]
    rows = [{**row, **{name: _storable(row.get(name)) for name in texts}} for row in rows]
    table = pyarrow.Table.from_pylist(rows, pyarrow.schema({n: COLUMNS[kind] for n, kind in columns.items()}))
    write_file(path, lambda scratch: pyarrow.parquet.write_table(table, scratch, **PACKING))


def _storable(text: Any) -> str | None:
    """Text without lone surrogates, which UTF-8 cannot store; other values as text."""
    return None if text is None else str(text).encode("utf-8", "replace").decode()


def move_folder(source: str, target: str) -> None:
    """Moves a folder out of a staging folder and replaces another one, after all its files are on disk."""
    paths, place = files_below(source), os.path.dirname(target)
    _flush({source, *paths, *map(os.path.dirname, paths)}, place=place)
    if os.path.isdir(target):
        shutil.rmtree(target)
    os.replace(source, target)
    _flush([place], place=place)


@contextmanager
def kept(paths: Iterable[str], folder: str) -> Iterator[dict[str, str]]:
    """Context that keeps the present content of files, even if the files are replaced meanwhile.

    Args:
        paths (`Iterable[str]`): Files that are only replaced and never changed in place, as all files of this module.
        folder (`str`): Folder for the copies. On the same file system, they are hard links. If it cannot be written,
            they are in the folder for temporary files.

    Returns:
        `dict[str, str]`: Path -> path of the kept content.
    """
    for left in uploads(folder):  # by a process that was killed
        with suppress(OSError):
            if time.time() - os.path.getmtime(left) > UPLOAD_SECONDS:
                shutil.rmtree(left)
    try:
        own = tempfile.mkdtemp(prefix=UPLOAD_PREFIX, dir=folder)
    except OSError:  # it may only be read
        own = tempfile.mkdtemp(prefix=UPLOAD_PREFIX)
    try:
        found = {}
        for number, path in enumerate(paths):
            found[path] = os.path.join(own, f"{number}-{os.path.basename(path)}")
            try:
                os.link(path, found[path])
            except OSError:  # on another file system, or one that has no hard links
                shutil.copyfile(path, found[path])
        yield found
    finally:
        shutil.rmtree(own, ignore_errors=True)


def files_below(folder: str) -> list[str]:
    """Paths of all files in a folder and its sub-folders."""
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]


def read_json(path: str | os.PathLike, *, missing: str) -> dict[str, Any]:
    """Reads a JSON file with a mapping, which all files of a run hold.

    Args:
        path (`str`): The file.
        missing (`str`): Message if there is no such file, with the fix.

    Raises:
        ValueError: If the file is missing or damaged.
    """
    folder, name = os.path.split(path)
    if not os.path.isfile(path):
        raise ValueError(f"{folder} holds no {name}: {missing}")
    with open(path, encoding="utf-8") as file:
        try:
            found = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({_briefly(error)}). Restore the file.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged (it holds a {type(found).__name__}, not a mapping). Restore the file.")
    return found


def read_lines(path: str | os.PathLike, parse: Callable[[Any], Record]) -> list[Record]:
    """The records in a file of JSON lines, without an incomplete last line, which a killed process may leave.

    A whole last line counts also without its line break, which an editor may have removed.

    Raises:
        ValueError: If another line cannot be read, or `parse` refuses it, or the file holds something else than lines.
    """
    with open(path, "rb") as file:
        *lines, torn = file.read().split(b"\n")
    if torn and not lines and not torn.startswith(b"{"):
        raise ValueError(f"{path} is damaged (it holds no JSON lines). Restore the file.")
    with suppress(ValueError, RecursionError):
        lines += [torn] * isinstance(json.loads(torn), dict)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(parse(json.loads(line)))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number}, cannot be read ({_briefly(error)}). Restore the line or remove it."
            ) from error
    return records


def parse_objects(lines: Iterable[bytes], path: str) -> Iterator[dict[str, Any]]:
    """The objects in the JSON lines of a file that somebody has written, one by one. Blank lines count for nothing.

    Raises:
        ValueError: At the first line that is no JSON object.
    """
    for number, line in enumerate(lines, start=1):
        line = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).removesuffix(b"\n")
        try:
            record = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}, is not JSON ({_briefly(error)}).") from None
        if line.strip() and not isinstance(record, dict):
            raise ValueError(f"{path}, line {number}, must be a JSON object, got {line.decode()!r:.60}.")
        if record is not None:
            yield record


def _briefly(error: Exception) -> str:
    """The error without the text that it could not decode, which may be long."""
    return f"it is not UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else repr(error)


@contextmanager
def damage_told(what: str) -> Iterator[None]:
    """Context in which a damaged file of weights is a `ValueError` that names what it is of."""
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"{what} is damaged: {error}. Save, copy or download it again.") from None


def unless_damaged(read: Callable[[], Record], otherwise: Record, remarks: list[str]) -> Record:
    """What `read` returns. If it refuses a file (`ValueError`): `otherwise`, and a remark that says so."""
    try:
        return read()
    except ValueError as error:
        remarks.append(f"Left out: {error}")
        return otherwise


def _flush(paths: Iterable[str], *, place: str) -> None:
    """Waits until files and folder entries are on disk, unless `place` is in a staging folder."""
    if STAGING_FOLDER not in os.path.abspath(place).split(os.sep):
        paths = list(paths)
        if len(paths) > 1:
            with suppress(RuntimeError), ThreadPoolExecutor() as pool:  # unless no more threads can be started
                list(pool.map(_flush_one, paths))  # together: the disk is waited for once
                return
        for path in paths:
            _flush_one(path)


def _flush_one(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not os.path.isdir(path):  # some network file systems flush no folders
            raise
    finally:
        os.close(descriptor)


def _lines(records: Iterable[Mapping]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()

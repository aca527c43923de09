"""Files are whole or as they were, and on the disk, when writing returns."""

import errno
import importlib.metadata
import os
import re
import resource
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

from tests.processes import taken
from trl_populora import __version__
from trl_populora.run_files.checkpoint import find_defect, write_checkpoint
from trl_populora.run_files.files import (
    alone,
    append_lines,
    check_writable,
    is_taken,
    read_json,
    read_lines,
    write_file,
    write_files,
    write_json,
    write_lines,
    write_table,
)
from trl_populora.run_files.layout import MANIFEST_FILE, STAGING_FOLDER, round_file
from trl_populora.run_files.run_folder import RunFolder


@pytest.fixture
def story(monkeypatch):
    """What was flushed and renamed, in order, by file name."""
    told, replace, fsync = [], os.replace, os.fsync

    def flushed(descriptor):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        told.append(("flush", re.sub(r"\.[0-9a-f]{8}\.saving$", ".saving", name)))
        fsync(descriptor)

    def renamed(source, target):
        told.append(("rename", os.path.basename(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return told


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_file(path, "text"),
        lambda path: write_file(path, b"bytes"),
        lambda path: write_file(path, lambda aside: write_json(aside, {})),
        lambda path: write_json(path, {"a": 1}),
        lambda path: write_lines(path, [{"a": 1}]),
        lambda path: write_table(path, [{"a": 1}], {"a": int}),
    ],
)
def test_a_file_is_flushed_before_it_is_renamed_and_its_folder_afterwards(tmp_path, story, write):
    write(tmp_path / "folder" / "file")
    assert story[-3:] == [("flush", "file.saving"), ("rename", "file"), ("flush", "folder")]
    assert os.listdir(tmp_path / "folder") == ["file"]


def test_processes_may_write_one_file_at_the_same_time(tmp_path):
    contents, path = [str(number) * 1000 for number in range(8)], tmp_path / "file"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: [write_file(path, content) for _ in range(20)], contents))
    assert path.read_text() in contents and os.listdir(tmp_path) == ["file"]


def test_lines_are_flushed_when_appended(tmp_path, story):
    path = tmp_path / "lines"
    append_lines(path, [{"a": 1}, {"b": 2}])
    assert story == [("flush", "lines"), ("flush", tmp_path.name)]
    append_lines(path, [{"c": 3}])
    assert story[2:] == [("flush", "lines")], "its name was there already"
    assert path.read_text() == '{"a": 1}\n{"b": 2}\n{"c": 3}\n'


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    write_file(path, "old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_full_disk_adds_no_lines(tmp_path, monkeypatch):
    append_lines(tmp_path / "lines", [{"a": 1}])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        append_lines(tmp_path / "lines", [{"b": 2}])
    assert (tmp_path / "lines").read_text() == '{"a": 1}\n'


def test_a_library_writes_files_into_a_folder(tmp_path, story):
    folder = tmp_path / "folder"

    def write(aside):
        os.makedirs(os.path.join(aside, "member"))
        for name in ("config", "member/weights"):
            with open(os.path.join(aside, name), "w") as file:
                file.write("new")

    write_file(folder / "config", "old")
    write_file(folder / "other", "kept")
    del story[:]
    write_files(folder, write)
    assert (folder / "config").read_text() == (folder / "member" / "weights").read_text() == "new"
    assert sorted(os.listdir(folder)) == ["config", "member", "other"]
    renames = [i for i, (what, _) in enumerate(story) if what == "rename"]
    assert {("flush", "config"), ("flush", "weights")} <= set(story[: renames[0]])
    assert {("flush", "folder"), ("flush", "member")} <= set(story[renames[-1] :])


def test_a_checkpoint_is_flushed_before_it_is_moved_into_place(tmp_path, story):
    """Files that it is made of are not flushed one after the other, but all of them are before the rename."""

    def write():
        folder = tmp_path / ".saving" / "checkpoint-2"
        write_json(folder / "state", {})
        write_files(folder, lambda aside: write_file(os.path.join(aside, "member", "weights"), b"1"))

    about = dict(output_dir=str(tmp_path), is_main=True, problems=lambda own: [own] if own else [], about={})
    assert write_checkpoint(write, step=2, **about) and find_defect(str(tmp_path / "checkpoint-2")) is None
    moved = story.index(("rename", "checkpoint-2"))
    expected = {"state", "weights", "manifest.json", "member", "checkpoint-2"}
    flushes = [name for what, name in story[:moved] if what == "flush"]
    assert len(flushes) == len(expected) and set(flushes) == expected
    assert story[moved + 1 :] == [("flush", tmp_path.name)]


def test_what_a_library_leaves_undone_changes_nothing(tmp_path):
    def write(aside):
        with open(os.path.join(aside, "config"), "w") as file:
            file.write("ne")
        full()

    write_file(tmp_path / "config", "old")
    with pytest.raises(OSError, match="No space left"):
        write_files(tmp_path, write)
    assert (tmp_path / "config").read_text() == "old" and os.listdir(tmp_path) == ["config"]


def test_files_are_written_without_further_threads(tmp_path, story, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    write_files(tmp_path, lambda aside: [write_file(os.path.join(aside, name), name) for name in "ab"])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "a", "b": "b"}
    assert sorted(name for what, name in story if what == "flush") == ["a", "b", tmp_path.name]


def test_a_full_disk_is_told_with_the_file(tmp_path):
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/table'"):
        write_file(tmp_path / "table", lambda _: full())


def test_what_safetensors_cannot_write_is_an_error_of_the_file(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        for write in (
            lambda: write_file(tmp_path / "weights", lambda aside: save_file({"a": torch.zeros(4096)}, aside)),
            lambda: write_files(tmp_path, lambda aside: save_file({"a": torch.zeros(4096)}, f"{aside}/weights")),
            lambda: append_lines(tmp_path / "lines", [{"text": "x" * 5000}]),
        ):
            with pytest.raises(OSError, match=f"File too large: '{tmp_path}") as caught:
                write()
            assert caught.value.errno == errno.EFBIG and os.listdir(tmp_path) in ([], ["lines"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "lines").read_bytes() == b""


def test_a_folder_that_is_not_utf8_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"output_dir='.*\\udcff' is not a name in UTF-8"):
        check_writable(os.fsdecode(bytes(tmp_path) + b"/\xff"), option="output_dir")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "there, resumed, told",
    [
        ([0, 1, 2, 3], 2, None),
        ([0, 1], 2, None),
        ([0], 3, "lacks 2 of the rounds before round 4, where the run goes on. The first is round 2."),
        ([], 1, "lacks 1 of the rounds before round 2, where the run goes on. The first is round 1."),
        (None, 2, "lacks 2 of the rounds before round 3"),
        ([0, 3], 4, "lacks 2 of the rounds before round 5, where the run goes on. The first is round 2."),
        ([4, 5], 4, None),  # it began from a checkpoint in another folder
        ([4], 6, "lacks 1 of the rounds before round 7, where the run goes on. The first is round 6."),
    ],
)
def test_lost_rounds_of_a_history_are_told(tmp_path, caplog, there, resumed, told):
    folder = RunFolder(str(tmp_path))
    if there is not None:
        write_lines(folder.history, [{"round": number} for number in there])
        for number in there:
            write_table(round_file(folder.path, number), [{"round": number}], {"round": int})
    folder.rewind(resumed, resumed, [])
    assert [told in record.getMessage() for record in caplog.records] == ([] if told is None else [True])
    if there is not None:
        assert read_lines(folder.history, lambda line: line["round"]) == [n for n in there if n < resumed]


def test_lost_tables_of_rounds_are_told(tmp_path, caplog):
    folder = RunFolder(str(tmp_path))
    write_lines(folder.history, [{"round": number} for number in range(4)])
    write_table(round_file(folder.path, 0), [{"round": 0}], {"round": int})
    folder.rewind(3, 3, [])
    (record,) = caplog.records
    assert (
        "rounds lacks the tables of 2 rounds, the first of round 2. Their completions are lost" in record.getMessage()
    )


def test_a_file_system_that_flushes_no_folders_will_do(tmp_path, monkeypatch):
    fsync = os.fsync

    def picky(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", picky)
    write_file(tmp_path / "file", "text")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EINVAL, "Invalid argument")))
    with pytest.raises(OSError, match="Invalid argument"):
        write_file(tmp_path / "file", "text")


def test_tables_keep_types_and_what_is_missing(tmp_path):
    columns = {"name": str, "count": int, "share": float, "good": bool}
    rows = [{"name": "a", "count": 1, "share": 1, "good": True}, dict.fromkeys(columns)]
    write_table(tmp_path / "table", rows, columns)
    table = pyarrow.parquet.read_table(tmp_path / "table")
    assert [str(kind) for kind in table.schema.types] == ["string", "int64", "double", "bool"]
    assert table.to_pylist() == rows


def test_damage_is_named_with_the_fix(tmp_path):
    with pytest.raises(ValueError, match=r"holds no table\.json: it is no run"):
        read_json(tmp_path / "table.json", missing="it is no run.")
    (tmp_path / "table.json").write_text('{"a": ')
    with pytest.raises(ValueError, match=r"table\.json is damaged .* Restore the file"):
        read_json(tmp_path / "table.json", missing="")
    (tmp_path / "table.json").write_text("[]")
    with pytest.raises(ValueError, match=r"table\.json is damaged \(it holds a list, not a mapping\)"):
        read_json(tmp_path / "table.json", missing="")
    path = tmp_path / "lines"
    for junk in (b"\0" * 50, b"\xff\xfegarbage"):
        path.write_bytes(junk)
        with pytest.raises(ValueError, match=r"lines is damaged \(it holds no JSON lines\)"):
            read_lines(path, dict)
    path.write_bytes(b'{"a"')  # the first line of a run that was killed
    assert read_lines(path, dict) == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert read_lines(path, lambda record: record["a"]) == [1, 2]
    path.write_text('{"a": 1}\n{"b": 2}\n')
    with pytest.raises(ValueError, match="lines, line 2, cannot be read .* Restore the line or remove it"):
        read_lines(path, lambda record: record["a"])


def test_text_that_utf8_cannot_hold_does_not_stop_a_table(tmp_path):
    import pyarrow.parquet

    write_table(tmp_path / "table", [{"a": "x\ud800", "b": 3}, {"a": None, "b": None}], {"a": str, "b": str})
    assert pyarrow.parquet.read_table(tmp_path / "table").to_pylist() == [
        {"a": "x?", "b": "3"},
        {"a": None, "b": None},
    ]


def test_a_checkout_that_is_not_installed_writes_checkpoints(tmp_path, monkeypatch):
    def unknown(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata.Distribution, "from_name", unknown)
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("trl-populora")

    def write():
        write_json(tmp_path / STAGING_FOLDER / "checkpoint-1" / "a.json", {})

    def problems(problem):
        return [problem] if problem else []

    write_checkpoint(write, output_dir=str(tmp_path), step=1, is_main=True, problems=problems, about={})
    assert read_json(tmp_path / "checkpoint-1" / MANIFEST_FILE, missing="")["trl_populora"] == __version__


def test_a_probe_of_a_killed_process_is_removed(tmp_path):
    old, young = tmp_path / ".writable-1.ab.saving", tmp_path / ".writable-2"
    for path in (old, young):
        path.touch()
    os.utime(old, (0, 0))
    check_writable(str(tmp_path), option="output_dir")
    assert [path.name for path in tmp_path.iterdir()] == [young.name]  # which may be of a process that lives


def test_what_is_no_file_is_not_replaced_by_one(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(ValueError, match=f"{path} is neither a file nor a folder.* Name a file"):
            write_file(path, "text")
    assert pipe.is_fifo() and link.is_symlink() and len(list(tmp_path.iterdir())) == 2


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    folder = str(tmp_path)
    with taken(folder):
        assert is_taken(folder)
        with pytest.raises(ValueError, match="another run trains there"), alone(folder):
            pass
    with pytest.raises(KeyError), alone(folder), alone(folder):  # the command's and the trainer's are one
        assert not is_taken(folder)
        raise KeyError
    with alone(folder), pytest.raises(BlockingIOError), taken(folder):
        pass
    assert not is_taken(folder) and not is_taken(f"{folder}/none") and list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert not is_taken(f"{tmp_path}/file/below") and not is_taken(f"{tmp_path}/{'x' * 300}")


def test_a_fork_that_lives_on_holds_no_folder(tmp_path, monkeypatch):
    """It has a copy of the descriptor, as processes that a reward function has started."""
    copies, opened = [], os.open
    monkeypatch.setattr(os, "open", lambda *args: copies.append(os.dup(one := opened(*args))) or one)
    with alone(str(tmp_path)):
        pass
    monkeypatch.undo()
    with taken(str(tmp_path)):
        pass
    os.close(*copies)

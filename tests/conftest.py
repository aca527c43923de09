"""What every test relies on: no network, one polite thread per process, and a base model made on the spot."""

import collections
import contextlib
import gc
import importlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any


os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # what is expected is of a CPU, also on a machine with a GPU
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # bitsandbytes imports the whole compiler otherwise, in each process
# trackio reads it when TRL imports it. Runs of tests are not among the user's own.
os.environ["TRACKIO_DIR"] = os.path.join(tempfile.gettempdir(), f"trackio-{os.getpid()}")

import pytest

from tests.drawn_examples import load_profile


load_profile()
ROOT = Path(__file__).parent


LONGEST = ("hub", "training", "integrations", "drop_in", "reporting", "self_play")
"""Folders whose files begin first, so that no process ends long after the others."""
TOGETHER = {
    "hub/": "a run",
    "evaluation/test_mathematics.py": "Math-Verify",
    "tasks/test_math_answers.py": "Math-Verify",
}
"""Folders and files that share what takes long to make, and so a process."""


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `every(n)`, all cases but the first of each n become slow ones."""
    cases: collections.Counter[str] = collections.Counter()
    for item in items:
        every = item.get_closest_marker("every")
        if every and not item.get_closest_marker("slow"):
            name = item.nodeid.partition("[")[0]
            if cases[name] % every.args[0]:
                item.add_marker("slow")
            cases[name] += 1
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.relative_to(ROOT).parts[0], len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            name = nodeid.removeprefix("tests/")
            shared = (what for start, what in TOGETHER.items() if name.startswith(start))
            return next(shared, super()._split_scope(nodeid))

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Each process first imports its share of all test files. Their asserts are rewritten then, and kept for the other
    processes, which would otherwise all rewrite the same file at the same time. Imports leave little garbage, and
    looking for it takes seconds."""
    gc.disable()
    try:
        count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
        if count > 1 and session.config.args == session.config.getini("testpaths"):
            own = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
            for path in sorted(ROOT.rglob("test_*.py"))[own::count]:
                with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection reports it
                    importlib.import_module(".".join(path.relative_to(ROOT.parent).with_suffix("").parts))
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Each start of a training run collects garbage: not among the hundred thousands of objects of the libraries."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message: warnings.WarningMessage) -> None:
    """The process that gathers results would import PEFT and Lightning, to print warnings of their own classes."""
    category = warning_message.category
    if category.__module__ != "builtins":
        warning_message.message = UserWarning(f"{category.__name__}: {warning_message.message}")
        warning_message.category = UserWarning


def pytest_sessionfinish() -> None:
    shutil.rmtree(os.environ["TRACKIO_DIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def sandbox():
    """One worker for all tests that only run programs. Each kind of job starts a server, with imports of its own."""
    from trl_populora.executor import Executor, Limits

    with Executor(1, Limits(wall_seconds=30.0)) as executor:  # on a busy machine, too, the processor's time ends first
        yield executor


@pytest.fixture(scope="session")
def executor(sandbox):
    return sandbox


@pytest.fixture(scope="session")
def run(sandbox):
    return sandbox.run_many


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> str:
    """Folder of a random Llama with two layers and a byte-level tokenizer with a chat template."""
    from tests import tiny

    folder = str(tmp_path_factory.mktemp("tiny_model"))
    tiny.tiny_tokenizer().save_pretrained(folder)
    tiny.two_layers().save_pretrained(folder)
    return folder

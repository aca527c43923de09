"""A Hub of our own, and a process whose `huggingface_hub` talks to it.

The client reads `HF_ENDPOINT` when it is imported, and pytest has imported it already: with another endpoint, offline.
What is tested runs therefore in one fresh process that lives as long as the tests of this folder
(`client(function, *arguments)`); the server stands in this one, where tests look at what has reached it.
"""

import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from tests.hub import scripts
from tests.hub.loopback import LoopbackHub


@pytest.fixture(scope="session")
def server():
    server = LoopbackHub()
    yield server
    server.close()


@pytest.fixture(scope="session")
def base_files(tiny_model) -> dict[str, bytes]:
    card = b"---\nlicense: apache-2.0\n---\n# A base\n"
    return {path.name: path.read_bytes() for path in Path(tiny_model).iterdir()} | {"README.md": card}


@pytest.fixture
def hub(server, base_files):
    """The server with nothing but the base model, `user/base`."""
    server.clear()
    server.put("user/base", base_files)
    yield server
    server.held.set()


@pytest.fixture(scope="session")
def process(server, tmp_path_factory):
    own = {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(tmp_path_factory.mktemp("hf_home")),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": "hf_user",
        "NO_PROXY": "*",
    }
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with mock.patch.dict(os.environ, own):
            pool.submit(scripts.prepare).result()  # starts it
        yield pool


@pytest.fixture
def client(process, hub):
    """`client(function, *arguments)` runs a function of a module in the process that talks to the loopback Hub."""
    return lambda function, *args, **kwargs: process.submit(function, *args, **kwargs).result()


@pytest.fixture(scope="session")
def trained(process, server, base_files, tmp_path_factory) -> str:
    """A run of two rounds on `user/base`, with a replacement, checkpoints and pictures, that was not pushed."""
    server.clear()
    server.put("user/base", base_files)
    folder = tmp_path_factory.mktemp("runs")
    settings = {"num_teachers": 2, "num_students": 2, "per_device_train_batch_size": 12, "evolution_interval": 1}
    settings |= {"plots": True}
    code, out, err = process.submit(scripts.train, settings, str(folder)).result()
    assert code == 0, out + err
    return str(folder / "demo")


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy of it."""
    shutil.copytree(trained, tmp_path / "demo")
    return tmp_path / "demo"

"""A Hub of our own, and a process whose `huggingface_hub` talks to it.

The client reads `HF_ENDPOINT` when it is imported, and pytest has imported it already: with another endpoint, offline.
What is tested runs therefore in one fresh process that lives as long as the tests of this folder
(`client(function, *arguments)`); the server stands in this one, where tests look at what has reached it.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.hub.loopback import LoopbackHub


@pytest.fixture(scope="session")
def server():
    server = LoopbackHub()
    yield server
    server.close()


@pytest.fixture
def hub(server):
    """The server, empty."""
    server.clear()
    yield server
    server.held.set()


@pytest.fixture(scope="session")
def process(server, tmp_path_factory):
    own = {
        "HF_ENDPOINT": server.url,
        "HF_HOME": str(tmp_path_factory.mktemp("hf_home")),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "0",
        "HF_TOKEN": "hf_user",
        "NO_PROXY": "*",
    }
    before = dict(os.environ)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        os.environ.update(own)
        try:
            pool.submit(os.getpid).result()  # starts it
        finally:
            os.environ.clear()
            os.environ.update(before)
        yield pool


@pytest.fixture
def client(process, hub):
    """`client(function, *arguments)` runs a function of a module in the process that talks to the loopback Hub."""
    return lambda function, *args, **kwargs: process.submit(function, *args, **kwargs).result()

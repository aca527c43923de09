"""A real `vllm serve`, which is killed and comes back, and one that cannot hold the members' rank."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.vllm_engine.conftest import population_on
from tests.vllm_engine.test_engine import PROMPTS, change, expected, ids
from tests.vllm_engine.test_trainer import train
from trl_populora.generation.engines import VLLM, EngineError, EngineSampler, ServerEngine, server_sampler


START_SECONDS = 280.0  # on a busy machine


class Server:
    def __init__(self, model, log):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            self.port = free.getsockname()[1]
        self.model, self.log, self.process = model, log, None

    def start(self, rank=8):
        # Not `vllm serve`: that command looks for a distribution of this name, and the CPU build has another.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model]
        command += ["--port", self.port]
        command += "--enable-lora --max-loras 4 --max-cpu-loras 8 --dtype float32 --enforce-eager".split()
        command += ["--max-lora-rank", rank, "--max-model-len", 1024, "--max-num-seqs", 32]
        command += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
        self.process = subprocess.Popen(
            list(map(str, command)),
            # 0: without a third process, for the worker, which takes a third of the start
            env=os.environ | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self):
        """Until it listens, or has failed; later starts are left to the sampler, which is what is tested."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, Path(self.log.name).read_text()[-3000:]
            with socket.socket() as probe:
                if probe.connect_ex(("localhost", self.port)) == 0:
                    return
            time.sleep(0.5)
        raise TimeoutError(Path(self.log.name).read_text()[-3000:])

    def served(self) -> list[str]:
        """The base and the adapters that it lists."""
        with urllib.request.urlopen(f"http://localhost:{self.port}/v1/models", timeout=START_SECONDS) as answer:
            return [card["id"] for card in json.load(answer)["data"]]

    def kill(self):
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def serving(model, log, **options):
    with open(log, "w") as file:
        server = Server(model, file)
        server.start(**options)
        try:
            server.wait()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="module")
def server(engine_model, tmp_path_factory):
    """Killed in the last test that has it."""
    with serving(engine_model, tmp_path_factory.mktemp("server") / "log") as server:
        yield server


@pytest.mark.timeout(600)
def test_the_trainer_reaches_it_as_any_server_of_adapters(server, engine_model, tokenizer, tmp_path):
    """Not by `use_vllm`: the interface that vLLM shares with others, with the little that those report."""
    kind = replace(VLLM, name="adapter", likeliest_by_id=False, filtered_logprobs=False, block_size=64)
    settings = dict(kind=kind, base_url=f"http://localhost:{server.port}", timeout=START_SECONDS)
    sampler = partial(server_sampler, adapter_dir=str(tmp_path / "adapters"), **settings)
    trainer, logs = train(2, engine_model, tokenizer, tmp_path, use_vllm=False, sampler=sampler)
    assert len(logs) == 3 and all(log["sampling/sampling_logp_difference/max"] < 1e-2 for log in logs)
    assert set(trainer.source.sampler.liveness) == set(trainer.population)
    assert not list((tmp_path / "adapters").iterdir())


@pytest.mark.timeout(1200)
def test_a_killed_server_gets_its_adapters_back(server, engine_model, tokenizer):
    population = population_on(engine_model, teachers=3, students=3)
    engine = ServerEngine(f"http://localhost:{server.port}", VLLM, timeout=START_SECONDS)
    sampler = EngineSampler(population, tokenizer, engine=engine, max_completion_length=16, temperature=0.0)
    members = list(population)
    prompts = PROMPTS[: len(members)]
    try:
        sampler.sync()
        assert sampler.engine.block_size == 128
        assert ids(sampler(prompts, members, seed=0)) == expected(sampler, prompts, members)
        assert ids(sampler(prompts, [None] * 6, seed=0)) == expected(sampler, prompts, [None] * 6)
        change(population, "student_2", seed=1)
        sampler.sync()
        assert ids(sampler(prompts, members, seed=0)) == expected(sampler, prompts, members)

        server.kill()
        server.start()
        assert ids(sampler(prompts, members, seed=0)) == expected(sampler, prompts, members)
        assert len(server.served()) == 1 + len(members)

        server.kill()
        server.start()
        change(population, "teacher_0", seed=2)
        sampler.sync()  # notices what is missing, besides what has changed
        assert ids(sampler(prompts, members, seed=0)) == expected(sampler, prompts, members)

        server.kill()
        sampler.engine.timeout = 0.5
        with pytest.raises(EngineError, match=r"does not answer after 0.5 s .*vllm serve MODEL --enable-lora"):
            sampler(prompts, members, seed=0)
    finally:
        sampler.engine.timeout = 0.5
        sampler.close()


@pytest.mark.timeout(600)
def test_a_server_that_cannot_hold_the_rank_is_refused(engine_model, tokenizer, tmp_path):
    refused = pytest.raises(EngineError, match="max_lora_rank.* a --max-lora-rank that holds")
    with serving(engine_model, tmp_path / "server.log", rank=1) as server, refused:
        EngineSampler(
            population_on(engine_model, teachers=1, students=1),
            tokenizer,
            engine=ServerEngine(f"http://localhost:{server.port}", VLLM, timeout=START_SECONDS),
            max_completion_length=16,
        )

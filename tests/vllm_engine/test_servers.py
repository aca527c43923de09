"""Three real `vllm serve`: rows are dealt among them, two are killed, and the rows stay the same."""

import threading

import pytest

from tests.vllm_engine.conftest import population_on
from tests.vllm_engine.test_engine import PROMPTS, change, expected, ids
from tests.vllm_engine.test_server import Server
from trl_populora.generation.engines import VLLM, EngineError, EngineSampler, ServersEngine


START_SECONDS = 1500.0  # three at once, on a busy machine


@pytest.fixture
def servers(engine_model, tmp_path):
    made = []
    for number in range(3):
        with open(tmp_path / f"server_{number}.log", "w") as log:
            made.append(Server(engine_model, log))
            made[-1].start()
    yield made
    for server in made:
        server.kill()


def kill_within_a_draw(engine, server):
    """The first row that goes to this server finds it dead."""
    (client,) = [one for one in engine.live if one.where.endswith(str(server.port))]
    draw, lock = client.draw, threading.Lock()

    def dying(row, sampling):
        with lock:
            server.kill()
        return draw(row, sampling)

    client.draw = dying


@pytest.mark.timeout(2400)
def test_rows_are_the_same_with_three_servers_with_two_and_with_one(servers, engine_model, tokenizer, caplog):
    population = population_on(engine_model, teachers=2, students=2)
    engine = ServersEngine([f"http://localhost:{server.port}" for server in servers], VLLM, timeout=START_SECONDS)
    sampler = EngineSampler(population, tokenizer, engine=engine, max_completion_length=16, temperature=1.0)
    members = list(population)
    prompts, rows = PROMPTS[:4] * 3, members * 3
    try:
        sampler.sync()
        change(population, "student_1", seed=1)
        sampler.sync()
        assert [len(server.served()) for server in servers] == [1 + len(members)] * 3
        sampler.temperature = 0.0
        assert ids(sampler(PROMPTS[:4], members, seed=0)) == expected(sampler, PROMPTS[:4], members)
        sampler.temperature = 1.0
        drawn = ids(sampler(prompts, rows, seed=7))
        assert len({tuple(one) for one in drawn}) > 6
        for left in (2, 1):
            kill_within_a_draw(engine, servers[left])
            assert ids(sampler(prompts, rows, seed=7)) == drawn
            assert len(engine.live) == left and f"localhost:{servers[left].port} went away" in caplog.text
        change(population, "teacher_0", seed=2)
        sampler.sync()
        sampler.temperature = 0.0
        assert ids(sampler(PROMPTS[:4], members, seed=0)) == expected(sampler, PROMPTS[:4], members)
        servers[0].kill()
        with pytest.raises(EngineError, match="No vLLM server is left"):
            sampler(prompts, rows, seed=7)
    finally:
        sampler.close()

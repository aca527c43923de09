"""Several servers as one engine: rows are dealt, every adapter travels once to each, and a lost server is left out."""

import json
import logging
import os
import threading
from pathlib import Path

import pytest

from tests.generation.fake_server import FakeServer, ModelServer, running
from tests.generation.test_engine_sampler import NAMES, PROMPTS, population_of, shift
from tests.generation.test_server_engine import SAMPLING, SPEC, VERSION, completion
from tests.generation.test_vllm_settings import settings_of
from tests.tiny import tiny_tokenizer
from tests.training.conftest import make_config
from trl_populora.generation import TransformersSampler, server_sampler, vllm_sampler
from trl_populora.generation.engines import VLLM, EngineError, EngineRow, LivenessError, ServersEngine
from trl_populora.generation.engines.servers import deal


CARD = {"id": "base", "root": "/models/base", "max_model_len": 64, "parent": None}


def start(server):
    """Runs until the test ends, or is killed, with the connections that are open."""
    context = running(server)
    context.__enter__()

    def kill():
        server.answers = dict.fromkeys(server.answers, (None, ""))
        context.__exit__(None, None, None)

    server.kill = kill
    return server


@pytest.fixture
def two():
    """Two servers without a model behind them."""
    servers = [start(FakeServer()), start(FakeServer())]
    for server in servers:
        server.answers = {
            "/v1/models": (200, {"data": [CARD]}),
            "/v1/completions": completion,
            "/v1/load_lora_adapter": (200, "Success"),
        }
    yield servers
    for server in servers:
        server.kill()


@pytest.fixture
def connect():
    engines = []

    def connect(servers, *, timeout=5.0):
        engines.append(ServersEngine([server.url for server in servers], VLLM, timeout=timeout))
        engines[-1].start(SPEC)
        return engines[-1]

    yield connect
    for engine in engines:
        engine.close()


def rows_of(lengths):
    return [EngineRow([150_000 + i] * length, VERSION, 1000 + i, 0.7) for i, length in enumerate(lengths)]


def right(rows):
    return [[row.seed, len(VERSION.name), *row.prompt_ids] for row in rows]


def requests(server, path="/v1/completions"):
    return [body for asked, body in server.asked if asked == path]


@pytest.mark.parametrize("sizes, parts", [([5] * 8, 4), ([9, 1, 1, 1, 1, 5, 4, 2], 2), ([3], 2), ([], 3)])
def test_rows_are_dealt_evenly(sizes, parts):
    places = deal(sizes, parts)
    sums = [sum(size for size, place in zip(sizes, places) if place == part) for part in range(parts)]
    assert len(places) == len(sizes) and max(sums) - min(sums) <= max(sizes, default=0)
    assert deal([1, 1, 1], 3, first=2) == [2, 0, 1]  # another process begins with another server


def test_every_server_gets_its_share_and_answers_come_back_in_order(two, connect):
    rows = rows_of([1, 9, 1, 9, 5, 5, 2, 2])
    drawn = connect(two).generate(rows, SAMPLING)
    assert [answer.ids for answer in drawn] == right(rows)
    tokens = [sum(len(body["prompt"]) + body["max_tokens"] for body in requests(server)) for server in two]
    assert tokens[0] == tokens[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [(None, ""), (500, {"error": "EngineCore died"}), (404, "no such adapter")],
    ids=["cut", "500", "restarted"],
)
def test_the_rows_of_a_lost_server_are_asked_again_of_the_others(two, connect, answer, caplog):
    """It fails in the middle of a draw; the other answers all rows, its own and those."""
    engine, good = connect(two), two[0].answers["/v1/completions"]
    answers = iter([good, good])
    two[0].answers["/v1/completions"] = lambda body: next(answers, lambda body: answer)(body)
    rows = rows_of([3] * 20)
    assert [answer.ids for answer in engine.generate(rows, SAMPLING)] == right(rows)
    assert len(requests(two[1])) == 18
    (warning,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert warning.index(two[0].url) < warning.index("It is left out") < warning.index(two[1].url)

    two[0].asked.clear()
    engine.generate(rows, SAMPLING)
    engine.load(VERSION)
    assert two[0].asked == [] and len(requests(two[1], VLLM.load)) == 1


def test_a_server_that_accepts_rows_and_never_answers_is_named_and_can_be_stopped(two, connect, caplog):
    """Its rows wait; when it is stopped, the other one answers them."""
    engine, stopped = connect(two), threading.Event()
    for server in engine.live:
        server.timeout = 0.2
    two[0].answers["/v1/completions"] = lambda body: (stopped.wait(), (None, ""))[1]
    rows = rows_of([3] * 6)
    warned = threading.Event()

    class Stop(logging.Handler):
        def emit(self, record):
            if "has answered none of its" in record.getMessage():
                warned.set()
                stopped.set()

    handler = Stop()
    logging.getLogger("trl_populora.generation.engines.server").addHandler(handler)
    try:
        assert [answer.ids for answer in engine.generate(rows, SAMPLING)] == right(rows)
    finally:
        stopped.set()
        logging.getLogger("trl_populora.generation.engines.server").removeHandler(handler)
    assert warned.is_set()
    (said,) = [record.getMessage() for record in caplog.records if "has answered none" in record.getMessage()]
    assert two[0].url in said and "none of its 3 rows" in said
    assert [server.url for server in two if server.url in engine.where] == [two[1].url]


def test_a_killed_server_is_left_out_also_between_draws_and_the_last_is_an_error(two, connect, caplog):
    engine = connect(two)
    engine.load(VERSION)
    two[0].kill()
    assert engine.missing([VERSION]) == [VERSION]  # of the other, which has it listed nowhere
    assert f"{two[0].url} does not answer" in caplog.text and engine.where == f"the vLLM server at {two[1].url}"
    two[1].answers["/v1/completions"] = (503, "overloaded")
    with pytest.raises(EngineError, match="No vLLM server is left: .*resume the run") as raised:
        engine.generate(rows_of([3] * 4), SAMPLING)
    assert all(server.url in str(raised.value) for server in two)


def test_an_adapter_goes_once_to_each_server_and_again_only_to_one_that_lost_it(two, connect):
    engine = connect(two)
    for _ in range(2):
        engine.load(VERSION)
    assert [len(requests(server, VLLM.load)) for server in two] == [1, 1]
    two[0].answers["/v1/models"] = (
        200,
        {"data": [CARD, {"id": VERSION.name, "root": VERSION.path, "parent": "base"}]},
    )
    assert engine.missing([VERSION]) == [VERSION]
    engine.load(VERSION)
    assert [len(requests(server, VLLM.load)) for server in two] == [1, 2]


def test_a_wrong_setting_of_one_server_is_an_error_and_no_loss(two, connect):
    engine = connect(two)
    two[1].answers["/v1/load_lora_adapter"] = (500, {"error": "LoRA rank 16 is greater than max_lora_rank 8."})
    with pytest.raises(EngineError, match=f"{two[1].url} refuses adapter.*a --max-lora-rank that holds"):
        engine.load(VERSION)
    two[1].answers["/v1/load_lora_adapter"] = (503, "overloaded")
    engine.load(VERSION)
    assert [server.where[-len(two[0].url) :] for server in engine.live] == [two[0].url]


def test_all_servers_must_be_there_at_the_start(two, connect):
    two[1].kill()
    with pytest.raises(EngineError, match=f"{two[1].url} does not answer after 1 s .*Start it with `VLLM_ALLOW"):
        connect(two, timeout=1)


@pytest.mark.parametrize(
    "urls, said",
    [
        ([], "empty"),
        (["http://a:1", "http://b:1", "http://a:1/"], "http://a:1 more than once"),
        (["http://a:1", "b:1"], "'b:1' is not the URL"),
    ],
)
def test_lists_that_are_wrong_are_refused(urls, said):
    with pytest.raises(ValueError, match=said):
        ServersEngine(urls, VLLM)


# With a model behind each -------------------------------------------------------------------------------------------


@pytest.fixture
def three():
    servers = [start(ModelServer(VLLM)) for _ in range(3)]
    yield servers
    for server in servers:
        server.kill()


def sampler_on(servers, population, folder, **settings):
    urls = [server.url for server in servers]
    args = settings_of(**settings)
    given = dict(kind="vllm", base_url=urls, timeout=5.0, adapter_dir=str(folder))
    return server_sampler(population, tiny_tokenizer(), None, args, **given)


def ids(sampler, members=NAMES, prompts=PROMPTS, seed=0):
    return [list(completion.ids) for completion in sampler(prompts, members, seed=seed)]


@pytest.mark.slow
def test_rows_are_the_same_whichever_server_answers(three, tmp_path):
    """Drawn at temperature 1 from three servers, from one, and from two after one was killed."""
    population = population_of()
    alone = sampler_on(three[:1], population, tmp_path)
    alone.sync()
    prompts, members = PROMPTS * 3, NAMES * 3
    expected = ids(alone, members, prompts, seed=5)
    assert len({tuple(row) for row in expected}) > 6
    alone.close()
    sampler = sampler_on(three, population, tmp_path)
    sampler.sync()
    for server in three:
        server.asked.clear()
    assert ids(sampler, members, prompts, seed=5) == expected
    assert [len(requests(server)) for server in three] == [4, 4, 4]
    three[1].kill()
    assert ids(sampler, members, prompts, seed=5) == expected
    sampler.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_canary_asks_every_server(three, tmp_path):
    population = population_of(1, 1)
    sampler = sampler_on(three, population, tmp_path)
    sampler.sync()
    three[2].double.stale = True
    shift(population, "student_0", by=0.5)
    with pytest.raises(LivenessError, match=f"{three[2].url} does not sample 'student_0' from its current weights"):
        sampler.sync()
    sampler.close()


@pytest.mark.slow
def test_a_server_that_comes_back_empty_between_rounds_gets_its_adapters(three, tmp_path):
    population = population_of()
    greedy = TransformersSampler(population, tiny_tokenizer(), max_completion_length=6, temperature=0.0)
    sampler = sampler_on(three, population, tmp_path, temperature=0.0)
    sampler.sync()
    three[0].forget()
    sampler.sync()
    assert [len(server.double.loaded) for server in three] == [4, 4, 4]
    assert ids(sampler) == ids(greedy)
    assert len(sampler.engine.live) == 3
    sampler.close()
    assert not any(server.double.loaded for server in three)


@pytest.mark.slow
def test_traffic_is_what_the_docs_count(three, tmp_path):
    """docs/scaling.md: each changed adapter is read once by each server; a row is one request to one server."""
    population = population_of()
    sampler = sampler_on(three, population, tmp_path)
    sampler.sync()
    for server in three:
        server.asked.clear()
    for name in ("student_0", "teacher_1"):
        shift(population, name)
    sampler.sync()
    parameters = sum(X.numel() for factor in population.factors("student_0").values() for X in factor[:2])
    for server in three:
        paths = [body["lora_path"] for body in requests(server, VLLM.load)]
        assert sorted(Path(path).name.split("-")[0] for path in paths) == ["student_0", "teacher_1"]
        read = sum(os.path.getsize(os.path.join(path, "adapter_model.safetensors")) for path in paths)
        header = 200 * 2 * len(population.factors("student_0"))  # of safetensors, for each tensor
        assert 2 * 4 * parameters < read < 2 * (4 * parameters + header)
    for server in three:
        server.asked.clear()
    ids(sampler, NAMES * 3, PROMPTS * 3)
    bodies = [body for server in three for body in requests(server)]
    assert len(bodies) == 12
    for body in bodies:
        sent = len(json.dumps(body, separators=(",", ":")))
        assert sent <= 7 * len(body["prompt"]) + 500
    sampler.close()


@pytest.mark.slow
def test_use_vllm_takes_several_urls(three, tmp_path):
    urls = [server.url for server in three]
    settings = dict(vllm_mode="server", vllm_server_base_url=None, vllm_server_base_urls=urls, vllm_server_timeout=5.0)
    args = settings_of(**settings, vllm_adapter_dir=str(tmp_path))
    sampler = vllm_sampler(population_of(1, 1), tiny_tokenizer(), None, args)
    assert [server.where for server in sampler.engine.live] == [f"the vLLM server at {url}" for url in urls]
    sampler.close()


SERVERS = {"vllm_server_base_urls": ["http://a:1", "http://b:1"], "use_vllm": True, "vllm_mode": "server"}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"vllm_server_base_urls": []}, "is empty. Give every server once"),
        ({"vllm_server_base_urls": ["http://a:1", "http://a:1/"]}, "names http://a:1 twice"),
        ({"vllm_server_base_urls": ["http://a:1", "b:1"]}, "has 'b:1', which is no URL"),
        ({"vllm_server_base_url": "http://c:1"}, "vllm_server_base_url='http://c:1' and vllm_server_base_urls"),
        ({"vllm_mode": "colocate"}, "needs use_vllm=true and vllm_mode='server'"),
        ({"use_vllm": False}, "needs use_vllm=true"),
    ],
)
def test_settings_of_servers_are_checked_at_construction(tmp_path, changes, said):
    assert make_config(tmp_path, **SERVERS).vllm_server_base_urls == SERVERS["vllm_server_base_urls"]
    with pytest.raises(ValueError, match=said):
        make_config(tmp_path, **SERVERS | changes)

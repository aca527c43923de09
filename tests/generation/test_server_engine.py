"""What the server engine makes of a server's answers; `vllm serve` itself is in tests/vllm_engine."""

import threading
from dataclasses import replace

import pytest
import torch

from tests.generation.engine_double import base_model
from tests.generation.fake_server import FakeServer, ModelServer, running
from tests.generation.test_engine_sampler import NAMES, PROMPTS, population_of, shift
from tests.generation.test_vllm_settings import settings_of
from tests.tiny import tiny_tokenizer
from trl_populora.generation import TransformersSampler, server_sampler
from trl_populora.generation.engines import (
    SGLANG,
    VLLM,
    EngineError,
    EngineRow,
    EngineSpec,
    LivenessError,
    ServerEngine,
    ServerLost,
)
from trl_populora.generation.engines.adapters import AdapterVersion
from trl_populora.generation.engines.server_kinds import KINDS


SPEC = EngineSpec("base", "base", torch.float32, 4, 4)
VERSION = AdapterVersion("student_0", "student_0-ab-1", 1, "/dev/shm/x/student_0-ab-1")
SAMPLING = {"max_tokens": 4, "logprobs": 0, "stop": []}


def completion(body):
    """Tokens that tell the seed and the adapter, so that rows can be told apart."""
    tokens = [body["seed"], len(body["model"]), *body["prompt"]]
    likeliest = [{f"token_id:{token}": -0.5, "token_id:9999": -1.0} for token in tokens]
    logprobs = {"token_logprobs": [-0.5] * len(tokens), "top_logprobs": likeliest}
    return 200, {"choices": [{"token_ids": tokens, "logprobs": logprobs}]}


@pytest.fixture
def server():
    server = FakeServer()
    server.answers = {
        "/v1/models": (200, {"data": [{"id": "base", "root": "/models/base", "max_model_len": 64, "parent": None}]}),
        "/metrics": (200, 'vllm:cache_config_info{block_size="32",engine="0"} 1.0\n'),
        "/v1/completions": completion,
        "/v1/load_lora_adapter": (200, "Success"),
        "/load_lora_adapter": (200, {"success": True}),
    }
    with running(server):
        yield server


@pytest.fixture
def connect(server):
    engines = []

    def connect(kind=VLLM, *, url=None, timeout=1.0):
        engines.append(ServerEngine(url or server.url, kind, timeout=timeout))
        engines[-1].start(SPEC)
        return engines[-1]

    yield connect
    for engine in engines:
        engine.close()


def test_reads_what_the_server_is(server, connect):
    engine = connect(url=server.url + "/")
    assert (engine.base_name, engine.max_model_length, engine.block_size) == ("base", 64, 32)
    del server.answers["/metrics"]
    assert connect().block_size == 16


def test_rows_are_requests_of_their_own_and_come_back_in_order(server, connect):
    engine = connect()
    rows = [EngineRow([i, i + 1], VERSION, seed, 0.7) for i, seed in enumerate(range(100, 140))]
    drawn = engine.generate(rows, SAMPLING)
    assert [answer.ids for answer in drawn] == [[row.seed, len(VERSION.name), *row.prompt_ids] for row in rows]
    assert drawn[0].logprobs == [-0.5] * 4 and drawn[0].likeliest[0] == {100: -0.5, 9999: -1.0}
    bodies = [body for path, body in server.asked if path == "/v1/completions"]
    assert len(bodies) == 40 and {body["model"] for body in bodies} == {VERSION.name}
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(0.7, 4)}
    (base,) = engine.generate([EngineRow([3], None, 1, 1.0)], SAMPLING)
    assert base.ids == [1, len("base"), 3]
    with pytest.raises(ValueError, match="in one call"):
        engine.generate([rows[0], EngineRow([3], None, 1, 1.0)], SAMPLING)


@pytest.mark.parametrize(
    "answer, error, said",
    [
        ((None, ""), ServerLost, "went away"),
        ((404, {"error": {"message": "The model `student_0-ab-1` does not exist."}}), ServerLost, "has lost adapter"),
        ((500, {"error": {"message": "EngineCore died"}}), ServerLost, "status 500: EngineCore died"),
        ((400, {"error": {"message": "prompt too long"}}), EngineError, "refuses a row.*prompt too long"),
    ],
)
def test_a_server_that_fails_is_told_from_one_that_refuses(server, connect, answer, error, said):
    engine = connect()
    server.answers["/v1/completions"] = answer
    with pytest.raises(EngineError, match=said) as raised:
        engine.generate([EngineRow([1], VERSION, 0, 1.0)], SAMPLING)
    assert type(raised.value) is error


@pytest.mark.parametrize(
    "status, body, said",
    [
        (404, {"detail": "Not Found"}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve"),
        (500, {"error": {"message": "LoRA rank 16 is greater than max_lora_rank 8."}}, "a --max-lora-rank that holds"),
        (500, {"error": {"message": "LoRA is not enabled."}}, "serves no LoRA.*--enable-lora"),
        (404, {"error": {"message": "No adapter found for /dev/shm/x"}}, "does not see /dev/shm/x.*adapter_dir"),
        (503, "overloaded", "status 503: overloaded"),
        (422, {"detail": [{"loc": ["body", "id"], "msg": "Field required"}]}, "status 422: .*Field required"),
    ],
)
def test_a_refused_adapter_names_the_setting(server, connect, status, body, said):
    engine = connect()
    server.answers["/v1/load_lora_adapter"] = (status, body)
    with pytest.raises(EngineError, match=said):
        engine.load(VERSION)


def test_an_adapter_that_another_rank_brought_is_loaded(server, connect):
    engine = connect()
    assert engine.missing([VERSION]) == [VERSION]
    server.answers["/v1/load_lora_adapter"] = (400, {"error": {"message": "has already been loaded"}})
    cards = server.answers["/v1/models"][1]["data"]
    cards.append({"id": VERSION.name, "root": "/elsewhere", "parent": "base"})
    with pytest.raises(EngineError, match="already been loaded"):
        engine.load(VERSION)
    cards[1]["root"] = VERSION.path
    engine.load(VERSION)
    assert engine.missing([VERSION]) == []


def test_a_server_is_waited_for_also_if_it_need_keep_no_adapter(server, connect):
    """A sync after a round in which all members learned: it asks for none of the adapters from before."""
    engine = connect()
    answers = iter([(503, "starting")])
    models = server.answers["/v1/models"]
    server.answers["/v1/models"] = lambda body: next(answers, models)
    server.asked.clear()
    assert engine.missing([]) == []
    assert [path for path, _ in server.asked] == ["/v1/models"] * 2


def test_a_server_is_waited_for_with_a_limit(server, connect):
    answers = iter([(503, "starting"), (503, "starting")])
    models = server.answers["/v1/models"]
    server.answers["/v1/models"] = lambda body: next(answers, models)
    connect(timeout=2.0)
    assert [path for path, _ in server.asked].count("/v1/models") == 3
    with pytest.raises(EngineError, match=r"does not answer after 0.1 s .*Start it with `VLLM_ALLOW_RUNTIME"):
        hanging = threading.Event()
        server.answers["/v1/models"] = lambda body: (hanging.wait(5.0), models)[1]
        connect(timeout=0.1)
    hanging.set()
    with pytest.raises(EngineError, match=r"does not answer after 0.1 s .*Start it with `VLLM_ALLOW_RUNTIME"):
        connect(url="http://localhost:9", timeout=0.1)


def test_what_is_no_vllm_server_is_refused(server, connect):
    with pytest.raises(ValueError, match="base_url='localhost:8000' is not the URL"):
        ServerEngine("localhost:8000", VLLM)
    server.answers["/v1/models"] = (200, {"data": []})
    with pytest.raises(EngineError, match="names no base model"):
        connect(timeout=0.1)


def test_a_connection_closed_between_calls_is_made_anew(server, connect):
    """A server may close an idle connection; that is noticed when it is used again, and is no loss."""
    engine = connect()
    models, answers = server.answers["/v1/models"], iter([(None, "")])
    server.answers["/v1/models"] = lambda body: next(answers, models)
    assert engine.missing([VERSION]) == [VERSION]


def test_a_load_that_hangs_is_no_load(server, connect):
    engine, hanging = connect(timeout=0.1), threading.Event()
    server.answers["/v1/load_lora_adapter"] = lambda body: (hanging.wait(5.0), (200, "late"))[1]
    with pytest.raises(ServerLost, match="went away .ReadTimeout"):
        engine.load(VERSION)
    hanging.set()


@pytest.mark.parametrize(
    "answer",
    [
        "<html>a proxy's page</html>",
        {"choices": []},
        {"choices": [{"text": "no tokens"}]},
        {"choices": [{"token_ids": [1, 2], "logprobs": {"token_logprobs": [-0.5], "top_logprobs": [{}, {}]}}]},
        ["a list"],
    ],
)
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_what_is_no_completion_is_refused(server, connect, kind, answer):
    engine = connect(kind)
    server.answers["/v1/completions"] = (200, answer)
    with pytest.raises(EngineError, match=f"no completion of token ids .*recent {kind.name}") as raised:
        engine.generate([EngineRow([1], VERSION, 0, 1.0)], SAMPLING)
    assert not isinstance(raised.value, ServerLost)


def test_what_is_no_list_of_models_is_waited_for_and_refused(server, connect):
    server.answers["/v1/models"] = (200, "warming up")
    with pytest.raises(EngineError, match="does not answer after 0.1 s .*JSONDecodeError.*or raise the timeout"):
        connect(timeout=0.1)


def test_sglang_names_adapters_beside_the_model(server, connect):
    engine = connect(SGLANG)
    engine.load(VERSION)
    engine.generate([EngineRow([3], VERSION, 7, 1.0)], SAMPLING)
    path, body = server.asked[-1]
    assert ("/load_lora_adapter", {"lora_name": VERSION.name, "lora_path": VERSION.path}) in server.asked
    assert (body["model"], body["lora_path"], body["prompt"], body["seed"]) == ("base", VERSION.name, [3], 7)
    server.answers["/v1/completions"] = (400, {"message": "requested LoRA adapters are not loaded: x"})
    with pytest.raises(ServerLost, match="has lost adapter"):
        engine.generate([EngineRow([3], VERSION, 7, 1.0)], SAMPLING)
    server.answers["/v1/completions"] = (400, {"message": "top_k must be -1 or at least 1"})
    with pytest.raises(EngineError, match="refuses a row .*top_k must be"):
        engine.generate([EngineRow([3], VERSION, 7, 1.0)], SAMPLING)
    server.answers["/load_lora_adapter"] = (400, {"success": False, "error_message": "LoRA is not enabled."})
    with pytest.raises(EngineError, match="the SGLang server .*serves no LoRA.*sglang.launch_server"):
        engine.load(VERSION)


# A sampler on a server with a model behind it ------------------------------------------------------------------------


def sampler_on(server, population, folder, **settings):
    args = settings_of(temperature=0.0, **settings)
    return server_sampler(
        population, tiny_tokenizer(), None, args, kind=server.kind, base_url=server.url, adapter_dir=str(folder)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_members_are_sampled_from_their_current_weights_also_after_a_restart(kind, tmp_path):
    population = population_of()
    greedy = TransformersSampler(population, tiny_tokenizer(), max_completion_length=6, temperature=0.0)

    def ids(sampler, members):
        return [list(completion.ids) for completion in sampler(PROMPTS, members, seed=0)]

    with running(ModelServer(kind)) as server:
        sampler = sampler_on(server, population, tmp_path)
        sampler.sync()
        for members in (NAMES, [None] * 4):
            assert ids(sampler, members) == ids(greedy, members)
        shift(population, "student_0")
        sampler.sync()
        assert ids(sampler, NAMES) == ids(greedy, NAMES)
        server.forget()
        assert ids(sampler, NAMES) == ids(greedy, NAMES)
        assert len(server.double.loaded) == len(NAMES)
        sampler.close()
        assert not server.double.loaded and not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("path", [VLLM.load, "/v1/completions"], ids=["loading", "checking"])
def test_a_server_that_restarts_within_a_sync_gets_its_adapters_again(path, tmp_path, caplog):
    population = population_of()
    greedy = TransformersSampler(population, tiny_tokenizer(), max_completion_length=6, temperature=0.0)
    with running(ModelServer(VLLM)) as server:
        sampler = sampler_on(server, population, tmp_path)
        sampler.sync()
        for name in NAMES:
            shift(population, name)
        answer, asked = server.answers[path], []

        def restarts_once(body):
            asked.append(body)
            if len(asked) == 2:
                server.forget()
                return 503, {"message": "shutting down"}
            return answer(body)

        server.answers[path] = restarts_once
        sampler.sync()
        assert "Waiting for it" in caplog.text and sorted(
            one.member for one in server.double.loaded.values()
        ) == sorted(NAMES)
        drawn = [list(one.ids) for one in sampler(PROMPTS, NAMES, seed=0)]
        assert drawn == [list(one.ids) for one in greedy(PROMPTS, NAMES, seed=0)]
        server.answers[path] = lambda body: (503, {"message": "shutting down"})
        shift(population, "student_0")
        with pytest.raises(ServerLost, match="shutting down"):
            sampler.sync()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_another_base_and_adapters_that_do_nothing_are_caught_over_http(kind, tmp_path):
    with running(ModelServer(kind)) as server:
        server.double.base = base_model(1).eval()
        with pytest.raises(LivenessError, match="frozen base.*Serve the same model"):
            sampler_on(server, population_of(1, 1), tmp_path)
    with (
        running(ModelServer(kind, deaf=True)) as server,
        pytest.raises(LivenessError, match="does not keep adapters apart"),
    ):
        sampler_on(server, population_of(1, 1), tmp_path)


def test_log_probabilities_before_the_filters_are_seen_where_the_kind_promises_others(tmp_path):
    with running(ModelServer(VLLM, raw=True)) as server:
        with pytest.raises(LivenessError, match="before temperature and filters"):
            sampler_on(server, population_of(1, 1), tmp_path)
        server.kind = replace(VLLM, filtered_logprobs=False)
        with pytest.raises(ValueError, match="top_p=0.9.*Leave them out"):
            sampler_on(server, population_of(1, 1), tmp_path, top_p=0.9)


def test_an_unknown_kind_of_server_is_refused():
    with pytest.raises(ValueError, match="kind='tgi' is unknown. Choose from .'sglang', 'vllm'."):
        server_sampler(population_of(1, 1), tiny_tokenizer(), None, settings_of(), kind="tgi", base_url="http://x")

"""What the server engine makes of a server's answers; `vllm serve` itself is in tests/vllm_engine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trl_populora.generation.vllm_adapters import AdapterVersion
from trl_populora.generation.vllm_engine import EngineError, EngineRow, ServerLost
from trl_populora.generation.vllm_server import ServerEngine


VERSION = AdapterVersion("student_0", "student_0-ab-1", 1, "/dev/shm/x/student_0-ab-1")
SAMPLING = {"max_tokens": 4, "logprobs": 0, "stop": []}


class Script(BaseHTTPRequestHandler):
    """Answers from `server.answers`: path -> (status, body) or a function of the request; keeps what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.path, body))
        answer = self.server.answers.get(self.path, (404, {"detail": "Not Found"}))
        status, content = answer(body) if callable(answer) else answer
        if status is None:  # the server dies
            self.close_connection = True
            return
        content = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    do_POST = do_GET

    def log_message(self, *args):
        pass


def completion(body):
    """Tokens that tell the seed and the adapter, so that rows can be told apart."""
    tokens = [body["seed"], len(body["model"]), *body["prompt"]]
    likeliest = [{f"token_id:{token}": -0.5, "token_id:9999": -1.0} for token in tokens]
    logprobs = {"token_logprobs": [-0.5] * len(tokens), "top_logprobs": likeliest}
    return 200, {"choices": [{"token_ids": tokens, "logprobs": logprobs}]}


class Server(ThreadingHTTPServer):
    request_queue_size = 128


@pytest.fixture
def server():
    server = Server(("localhost", 0), Script)
    server.daemon_threads = True
    server.asked = []
    server.answers = {
        "/v1/models": (200, {"data": [{"id": "base", "root": "/models/base", "max_model_len": 64, "parent": None}]}),
        "/metrics": (200, 'vllm:cache_config_info{block_size="32",engine="0"} 1.0\n'),
        "/v1/completions": completion,
        "/v1/load_lora_adapter": (200, "Success"),
    }
    server.url = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
    yield server
    server.shutdown()
    server.server_close()


def test_reads_what_the_server_is(server):
    engine = ServerEngine(server.url + "/", timeout=1.0)
    assert (engine.base_name, engine.max_model_length, engine.block_size) == ("base", 64, 32)
    del server.answers["/metrics"]
    assert ServerEngine(server.url, timeout=1.0).block_size == 16
    engine.close()


def test_rows_are_requests_of_their_own_and_come_back_in_order(server):
    engine = ServerEngine(server.url, timeout=1.0)
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
    engine.close()


@pytest.mark.parametrize(
    "answer, error, said",
    [
        ((None, ""), ServerLost, "went away"),
        ((404, {"error": {"message": "The model `student_0-ab-1` does not exist."}}), ServerLost, "has lost adapter"),
        ((500, {"error": {"message": "EngineCore died"}}), ServerLost, "status 500: EngineCore died"),
        ((400, {"error": {"message": "prompt too long"}}), EngineError, "refuses a row.*prompt too long"),
    ],
)
def test_a_server_that_fails_is_told_from_one_that_refuses(server, answer, error, said):
    engine = ServerEngine(server.url, timeout=1.0)
    server.answers["/v1/completions"] = answer
    with pytest.raises(EngineError, match=said) as raised:
        engine.generate([EngineRow([1], VERSION, 0, 1.0)], SAMPLING)
    assert type(raised.value) is error
    engine.close()


@pytest.mark.parametrize(
    "status, body, said",
    [
        (404, {"detail": "Not Found"}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 vllm serve"),
        (500, {"error": {"message": "LoRA rank 16 is greater than max_lora_rank 8."}}, "a --max-lora-rank that holds"),
        (500, {"error": {"message": "LoRA is not enabled."}}, "serves no LoRA.*--enable-lora"),
        (404, {"error": {"message": "No adapter found for /dev/shm/x"}}, "does not see /dev/shm/x.*vllm_adapter_dir"),
        (503, "overloaded", "status 503: overloaded"),
    ],
)
def test_a_refused_adapter_names_the_setting(server, status, body, said):
    engine = ServerEngine(server.url, timeout=1.0)
    server.answers["/v1/load_lora_adapter"] = (status, body)
    with pytest.raises(EngineError, match=said):
        engine.load(VERSION)
    engine.close()


def test_an_adapter_that_another_rank_brought_is_loaded(server):
    engine = ServerEngine(server.url, timeout=1.0)
    assert engine.missing([VERSION]) == [VERSION]
    server.answers["/v1/load_lora_adapter"] = (400, {"error": {"message": "has already been loaded"}})
    cards = server.answers["/v1/models"][1]["data"]
    cards.append({"id": VERSION.name, "root": "/elsewhere", "parent": "base"})
    with pytest.raises(EngineError, match="already been loaded"):
        engine.load(VERSION)
    cards[1]["root"] = VERSION.path
    engine.load(VERSION)
    assert engine.missing([VERSION]) == []
    engine.close()


def test_a_server_is_waited_for_with_a_limit(server):
    answers = iter([(503, "starting"), (503, "starting")])
    models = server.answers["/v1/models"]
    server.answers["/v1/models"] = lambda body: next(answers, models)
    ServerEngine(server.url, timeout=2.0).close()
    assert [path for path, _ in server.asked].count("/v1/models") == 3
    with pytest.raises(EngineError, match=r"does not answer after 0.1 s .*Start it with `VLLM_ALLOW_RUNTIME"):
        hanging = threading.Event()
        server.answers["/v1/models"] = lambda body: (hanging.wait(5.0), models)[1]
        ServerEngine(server.url, timeout=0.1)
    hanging.set()
    with pytest.raises(EngineError, match=r"does not answer after 0.1 s .*Start it with `VLLM_ALLOW_RUNTIME"):
        ServerEngine("http://localhost:9", timeout=0.1)


def test_what_is_no_vllm_server_is_refused(server):
    with pytest.raises(ValueError, match="vllm_server_base_url='localhost:8000' is no URL"):
        ServerEngine("localhost:8000", timeout=0.1)
    server.answers["/v1/models"] = (200, {"data": []})
    with pytest.raises(EngineError, match="names no base model"):
        ServerEngine(server.url, timeout=0.1)


def test_a_connection_closed_between_calls_is_made_anew(server):
    engine = ServerEngine(server.url, timeout=1.0)
    engine._local.connection.sock.close()
    assert engine.missing([VERSION]) == [VERSION]
    engine.close()

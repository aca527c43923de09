"""A loopback server that looks like vLLM's or SGLang's to a client: answers from a script, or from a model."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.generation.engine_double import EngineDouble
from trl_populora.generation.engines import SGLANG, EngineRow
from trl_populora.generation.engines.adapters import AdapterVersion


class Handler(BaseHTTPRequestHandler):
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


class FakeServer(ThreadingHTTPServer):
    """Answers from `answers`: path -> (status, body) or a function of the request; keeps what it was asked."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self):
        super().__init__(("localhost", 0), Handler)
        self.url = f"http://localhost:{self.server_port}"
        self.asked, self.answers = [], {}

    def handle_error(self, request, client_address):
        """A client that hangs up is part of the tests."""


@contextmanager
def running(server):
    threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class ModelServer(FakeServer):
    """A server of one kind with a model behind it, as [`EngineDouble`] answers. `forget` is a restart of it."""

    def __init__(self, kind, **faults):
        super().__init__()
        self.kind, self.double, self.lock = kind, EngineDouble(**faults), threading.Lock()
        self.answers = {
            "/v1/models": lambda body: (200, {"data": self.cards()}),
            "/v1/completions": self.complete,
            kind.load: self.load,
            kind.unload: self.unload,
        }

    def forget(self):
        self.double = EngineDouble()

    def cards(self):
        base = {"id": "base", "root": "base", "parent": None, "max_model_len": self.double.max_model_length}
        loaded = self.double.loaded.values()
        return [base, *({"id": one.name, "root": one.path, "parent": "base", "max_model_len": None} for one in loaded)]

    def load(self, body):
        name, path = body["lora_name"], body["lora_path"]
        with self.lock:
            self.double.load(AdapterVersion(name.rsplit("-", 2)[0], name, len(self.double.history) + 1, path))
        return 200, {"success": True} if self.kind is SGLANG else "Success: LoRA adapter added successfully."

    def unload(self, body):
        self.double.loaded.pop(body["lora_name"], None)
        return 200, "done"

    def complete(self, body):
        name = body.get(self.kind.adapter_field, "base")
        if name != "base" and name not in self.double.loaded:
            text = f"The following requested LoRA adapters are not loaded: {name}"
            return self.kind.lost_status, {"object": "error", "message": text}
        adapter = self.double.loaded.get(name)
        row = EngineRow(body["prompt"], adapter, body["seed"], body["temperature"])
        with self.lock:
            (drawn,) = self.double.generate([row], body)
        if self.kind.likeliest_by_id:
            top = [{f"token_id:{token}": value for token, value in one.items()} for one in drawn.likeliest]
        else:
            top = [{"text": max(one.values())} for one in drawn.likeliest]
        return 200, {
            "choices": [{"token_ids": drawn.ids, "logprobs": {"token_logprobs": drawn.logprobs, "top_logprobs": top}}]
        }

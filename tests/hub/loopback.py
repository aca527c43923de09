"""A Hub on 127.0.0.1: what the real `huggingface_hub` client needs of one, over HTTP, kept in memory.

It is as strict as the Hub where a mistake would otherwise pass unseen: writing needs a token and the right namespace,
a README's metadata is validated, an LFS object must arrive whole before a commit may name it, and a commit on a parent
that is no longer the head is refused. Xet and pull requests are left out; the client is told to use LFS.
"""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import yaml


TOKENS = {"hf_user": "user", "hf_other": "other"}
LFS_ENDINGS = (".safetensors", ".bin", ".pt", ".parquet", ".arrow", ".zip", ".pkl")
LFS_SIZE = 10_000_000
REPO_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
LICENSES = {"apache-2.0", "mit", "llama3.1", "cc-by-4.0", "other"}


class Refused(Exception):
    """An answer that is an error: status, `X-Error-Code` as the Hub sends it, and words."""

    def __init__(self, status: int, words: str, code: str = "", **body: object) -> None:
        super().__init__(words)
        self.status, self.words, self.code, self.body = status, words, code, {"error": words, **body}


@dataclass
class Blob:
    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def git(self) -> str:
        """What git calls it: of an LFS file, its pointer."""
        content = self.content
        if self.lfs:
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(content)}\n"
            content = pointer.encode()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git


@dataclass
class Repo:
    kind: str
    id: str
    private: bool
    commits: list[tuple[str, str, dict[str, Blob]]] = field(default_factory=list)  # of main: oid, title, files
    branches: dict[str, list] = field(default_factory=dict)  # others, in the same form

    def commit(self, title: str, files: dict[str, Blob], branch: str = "main") -> str:
        commits = self.branch(branch)
        listing = json.dumps([len(commits), self.id, title, sorted((p, b.git) for p, b in files.items())])
        commits.append((hashlib.sha1(listing.encode()).hexdigest(), title, files))
        return commits[-1][0]

    def branch(self, name: str) -> list:
        if name != "main" and name not in self.branches:
            raise Refused(404, f"Invalid rev id: {name}", "RevisionNotFound")
        return self.commits if name == "main" else self.branches[name]

    @property
    def files(self) -> dict[str, Blob]:
        return self.commits[-1][2]

    def at(self, revision: str) -> tuple[str, dict[str, Blob]]:
        for commits in (self.commits, *self.branches.values()):
            for oid, _, files in commits:
                if revision == oid:
                    return oid, files
        oid, _, files = self.branch(revision)[-1]
        return oid, files


class LoopbackHub:
    """The server and what it holds.

    Attributes:
        repos (`dict[tuple[str, str], Repo]`): By kind (`"model"`, `"dataset"`) and id.
        requests (`list[tuple[str, str]]`): Method and path of every request, in order.
        failures (`list[tuple[str, str]]`): What to answer by hanging up, once each: method and part of a path.
        held (`threading.Event`): While it is cleared, uploads wait before any content is sent.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.clear()

        class Handler(HubHandler):
            hub = self

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.storage = f"http://localhost:{self.server.server_port}/storage"  # another host, as on the Hub
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def clear(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.failures: list[tuple[str, str]] = []
        self.held = threading.Event()
        self.held.set()

    def close(self) -> None:
        self.held.set()
        self.server.shutdown()
        self.server.server_close()

    # What tests ask -----------------------------------------------------------------------------------------------

    def files(self, id: str, kind: str = "model") -> set[str]:
        """Paths of the newest commit, without what every repository has."""
        return set(self.repos[kind, id].files) - {".gitattributes"}

    def read(self, id: str, path: str, kind: str = "model") -> bytes:
        return self.repos[kind, id].files[path].content

    def card(self, id: str, kind: str = "model") -> tuple[dict, str]:
        """Metadata and text of a repository's README."""
        _, head, text = self.read(id, "README.md", kind).decode().split("---\n", 2)
        return yaml.safe_load(head), text

    def put(self, id: str, files: dict[str, bytes], *, private: bool = False) -> None:
        """A model repository that is there already."""
        repo = self.repos["model", id] = Repo("model", id, private)
        repo.commit("initial commit", {p: Blob(content, lfs=p.endswith(LFS_ENDINGS)) for p, content in files.items()})

    def titles(self, id: str, kind: str = "model") -> list[str]:
        return [title for _, title, _ in self.repos[kind, id].commits]

    # What the client asks -----------------------------------------------------------------------------------------

    def create(self, user: str, wanted: dict) -> dict:
        kind, owner = wanted.get("type") or "model", wanted.get("organization") or user
        id = f"{owner}/{wanted['name']}"
        if owner != user:
            raise Refused(403, f'You don\'t have the rights to create a {kind} under the namespace "{owner}"')
        url = f"{self.url}/{'' if kind == 'model' else kind + 's/'}{id}"
        if (kind, id) in self.repos:
            raise Refused(409, f"You already created this {kind} repo: {id}", url=url)
        repo = Repo(kind, id, private=wanted.get("visibility") == "private" or bool(wanted.get("private")))
        repo.commit("initial commit", {".gitattributes": Blob(b"*.safetensors filter=lfs\n", lfs=False)})
        self.repos[kind, id] = repo
        return {"url": url, "name": id, "id": id}

    def repo(self, kind: str, id: str, user: str | None, *, write: bool = False) -> Repo:
        repo = self.repos.get((kind, id))
        owned = repo is not None and id.split("/")[0] == user
        if repo is None or (repo.private and not owned):
            raise Refused(401 if user is None else 404, "Repository not found", "RepoNotFound")
        if write and user is None:
            raise Refused(401, "Invalid username or password.")
        if write and not owned:
            raise Refused(403, f"Forbidden: you must be in a sufficiently privileged role to write to {id}")
        return repo

    def info(self, repo: Repo, revision: str) -> dict:
        oid, files = repo.at(revision)
        card = {}
        if "README.md" in files and files["README.md"].content.startswith(b"---\n"):
            card = yaml.safe_load(files["README.md"].content.decode().split("---\n", 2)[1]) or {}
        tags = [*card.get("tags", []), *([f"license:{card['license']}"] if "license" in card else [])]
        return {
            "_id": "0", "id": repo.id, "modelId": repo.id, "sha": oid, "private": repo.private, "gated": False,
            "disabled": False, "downloads": 0, "likes": 0, "tags": tags, "cardData": card,
            "siblings": [{"rfilename": path} for path in sorted(files)],
            "lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z",
        }  # fmt: skip

    def entries(self, repo: Repo, revision: str, below: str, *, recursive: bool) -> list[dict]:
        _, files = repo.at(revision)
        prefix = f"{below}/" if below else ""
        own = {path: blob for path, blob in files.items() if path.startswith(prefix)}
        if below and not own:
            raise Refused(404, f"{below} does not exist on {revision!r}", "EntryNotFound")
        found = {}
        for path, blob in sorted(own.items()):
            parts = path[len(prefix) :].split("/")
            folders = [prefix + "/".join(parts[:depth]) for depth in range(1, len(parts))]
            for folder in folders if recursive else folders[:1]:
                found[folder] = {"type": "directory", "path": folder, "size": 0, "oid": "0" * 40}
            if recursive or not folders:
                found[path] = entry(path, blob)
        return list(found.values())

    def paths_info(self, repo: Repo, revision: str, paths: list[str]) -> list[dict]:
        _, files = repo.at(revision)
        found = [entry(path, files[path]) for path in paths if path in files]
        folders = [path for path in paths if path not in files and any(f.startswith(f"{path}/") for f in files)]
        return found + [{"type": "directory", "path": path, "size": 0, "oid": "0" * 40} for path in folders]

    def preupload(self, repo: Repo, revision: str, wanted: list[dict]) -> dict:
        _, files = repo.at(revision)
        told = []
        for one in wanted:
            sample = base64.b64decode(one["sample"])
            binary = b"\0" in sample or one["path"].endswith(LFS_ENDINGS) or one["size"] >= LFS_SIZE
            old = files.get(one["path"])
            told.append(
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if binary else "regular",
                    "shouldIgnore": False,
                    "oid": old and old.etag,
                }
            )
        return {"files": told}

    def batch(self, wanted: dict) -> dict:
        if wanted["operation"] != "upload" or wanted["hash_algo"] != "sha256":
            raise Refused(422, f"Unknown batch {wanted['operation']!r}")
        objects = []
        for one in wanted["objects"]:
            told = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.objects:
                place = f"{self.storage}/{one['oid']}"
                told["actions"] = {"upload": {"href": place}, "verify": {"href": f"{place}/verify"}}
            objects.append(told)
        return {"transfer": "basic", "objects": objects}

    def store(self, oid: str, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != oid:
            raise Refused(400, "The provided checksum does not match the content")
        self.objects[oid] = content

    def commit(self, repo: Repo, revision: str, lines: list[dict]) -> dict:
        head, _, there = repo.branch(revision)[-1]
        header, files = lines[0]["value"], dict(there)
        if header.get("parentCommit") not in (None, head):
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        for line in lines[1:]:
            value = line["value"]
            path = value["path"]
            if path.startswith("/") or ".." in path.split("/"):
                raise Refused(400, f"Invalid path {path!r}")
            if line["key"] == "file":
                files[path] = Blob(base64.b64decode(value["content"]), lfs=False)
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.objects:
                    raise Refused(400, f"LFS pointer pointed to a file that does not exist: {path}")
                files[path] = Blob(self.objects[value["oid"]], lfs=True)
            elif line["key"] == "deletedFile":
                if path not in files:
                    raise Refused(404, "A file with this name doesn't exist", "EntryNotFound")
                del files[path]
            elif line["key"] == "deletedFolder":
                files = {one: blob for one, blob in files.items() if not one.startswith(path.rstrip("/") + "/")}
            else:
                raise Refused(400, f"Unknown operation {line['key']!r}")
        if "README.md" in files:
            problems = flaws(files["README.md"].content.decode(), repo.kind)
            if problems:
                raise Refused(400, "; ".join(problems))
        oid = repo.commit(header["summary"], files, revision)
        return {"commitOid": oid, "commitUrl": f"{self.url}/{repo.id}/commit/{oid}", "hookOutput": "", "success": True}


def entry(path: str, blob: Blob) -> dict:
    told = {"type": "file", "path": path, "size": len(blob.content), "oid": blob.git}
    if blob.lfs:
        told["lfs"] = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": 134}
    return told


def flaws(readme: str, kind: str) -> list[str]:
    """What the Hub refuses in a README's metadata."""
    if not readme.startswith("---\n"):
        return []
    try:
        data = yaml.safe_load(readme.split("---\n", 2)[1]) or {}
    except yaml.YAMLError as error:
        return [f"not YAML: {error}"]
    found = []
    for key in ("base_model", "datasets"):
        values = data.get(key, [])
        for value in [values] if isinstance(values, str) else values:
            if not isinstance(value, str) or not REPO_ID.fullmatch(value):
                found.append(f'"{key}" with value "{value}" is not valid. Use a model id or dataset id.')
    relation = data.get("base_model_relation", "adapter")
    if relation not in ("adapter", "merge", "quantized", "finetune"):
        found.append(f'"base_model_relation" must be one of [finetune, adapter, merge, quantized], got {relation!r}')
    if not all(isinstance(tag, str) for tag in data.get("tags", [])):
        found.append('"tags" must be strings')
    if data.get("license", "mit") not in LICENSES:
        found.append(f'"license" must be one of {sorted(LICENSES)}')
    for model in data.get("model-index", []):
        if not model.get("name") or any({"task", "dataset", "metrics"} - set(one) for one in model["results"]):
            found.append('"model-index" needs a name, and results of task, dataset and metrics')
    if kind == "dataset" and not all("config_name" in config for config in data.get("configs", [])):
        found.append('"configs" need names')
    return found


class HubHandler(BaseHTTPRequestHandler):
    """From requests to the methods of the hub."""

    protocol_version = "HTTP/1.1"
    hub: LoopbackHub

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.handle_request()

    do_POST = do_PUT = do_HEAD = do_GET

    def handle_request(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        body = self.body()
        self.hub.requests.append((self.command, path))
        for failure in self.hub.failures:
            if failure[0] == self.command and failure[1] in path:
                self.hub.failures.remove(failure)
                self.close_connection = True
                self.connection.close()
                return
        if path == "/release":  # a test's own
            self.hub.held.set()
        if "/preupload/" in path:  # files have been named by now, and are read later
            self.hub.held.wait()
        try:
            with self.hub.lock:
                answer = self.answer(path, parse_qs(url.query), body)
        except Refused as refused:
            headers = {"X-Error-Code": refused.code} if refused.code else {}
            self.send(refused.status, refused.body, {**headers, "X-Error-Message": refused.words})
            return
        if answer is not None:
            self.send(200, answer, {})

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    @property
    def user(self) -> str | None:
        """Who asks; `None` without a token. A wrong token is refused everywhere, as on the Hub."""
        given = self.headers.get("Authorization")
        if given is None:
            return None
        user = TOKENS.get(given.removeprefix("Bearer "))
        if user is None:
            raise Refused(401, "Invalid credentials in Authorization header")
        return user

    def answer(self, path: str, query: dict, body: bytes) -> object | None:
        hub, user = self.hub, self.user
        if path == "/release":
            return {}
        if path == "/api/whoami-v2":
            if user is None:
                raise Refused(401, "Invalid username or password.")
            return {"type": "user", "name": user, "fullname": user, "orgs": [], "auth": {"type": "access_token"}}
        if path == "/api/repos/create":
            if user is None:
                raise Refused(401, "Invalid username or password.")
            return hub.create(user, json.loads(body))
        if path == "/api/validate-yaml":
            given = json.loads(body)
            if problems := flaws(given["content"], given["repoType"]):
                raise Refused(400, "Invalid metadata", errors=[{"message": one} for one in problems], warnings=[])
            return {"errors": [], "warnings": []}
        if match := re.fullmatch(r"/storage/([0-9a-f]{64})(/verify)?", path):
            if self.command == "PUT":
                hub.store(match[1], body)
            elif match[2] and match[1] not in hub.objects:
                raise Refused(404, "No such object")
            elif self.command in ("GET", "HEAD"):
                return self.send_content(hub.objects[match[1]], {})
            return {}
        if match := re.fullmatch(r"/(datasets/)?([\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch", path):
            hub.repo("dataset" if match[1] else "model", match[2], user, write=True)
            return hub.batch(json.loads(body))
        if match := re.fullmatch(r"/(datasets/)?([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)", path):
            return self.resolve(hub.repo("dataset" if match[1] else "model", match[2], user), match[3], match[4])
        if match := re.fullmatch(r"/api/(model|dataset)s/([\w.-]+/[\w.-]+)/auth-check(/write)?", path):
            hub.repo(match[1], match[2], user, write=bool(match[3]))
            return {}
        if match := re.fullmatch(r"/api/(model|dataset)s/([\w.-]+/[\w.-]+)(?:/(\w[\w-]*)/([^/]+)(?:/(.+))?)?", path):
            kind, id, action, revision, rest = match.groups()
            repo = hub.repo(kind, id, user, write=action in ("preupload", "commit", "branch"))
            if action in (None, "revision"):
                return hub.info(repo, revision or "main")
            if action == "branch":
                if revision in repo.branches:
                    raise Refused(409, f"Reference already exists: {revision}")
                repo.branches[revision] = list(repo.commits)
                return {}
            if action == "tree":
                return hub.entries(repo, revision, rest or "", recursive=query.get("recursive", [""])[0] == "true")
            if action == "paths-info":
                return hub.paths_info(repo, revision, parse_qs(body.decode())["paths"])
            if action == "preupload":
                return hub.preupload(repo, revision, json.loads(body)["files"])
            if action == "commit":
                return hub.commit(repo, revision, [json.loads(line) for line in body.splitlines()])
        raise Refused(404, f"The loopback hub has no {self.command} {path}")

    def resolve(self, repo: Repo, revision: str, path: str) -> None:
        oid, files = repo.at(revision)
        if path not in files:
            raise Refused(404, "Entry not found", "EntryNotFound")
        blob = files[path]
        headers = {"X-Repo-Commit": oid, "ETag": f'"{blob.etag}"'}
        if not blob.lfs:
            return self.send_content(blob.content, headers)
        self.hub.objects.setdefault(blob.sha256, blob.content)
        headers |= {"X-Linked-Etag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.content))}
        self.send(302, {}, headers | {"Location": f"{self.hub.storage}/{blob.sha256}"})

    def send_content(self, content: bytes, headers: dict[str, str]) -> None:
        start, stop, status = 0, len(content), 200
        if asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, stop, status = int(asked[1]), min(int(asked[2] or stop - 1) + 1, stop), 206
            headers = headers | {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
        self.send_bytes(status, content[start:stop], headers | {"Accept-Ranges": "bytes"})

    def send(self, status: int, data: object, headers: dict[str, str]) -> None:
        self.send_bytes(status, json.dumps(data).encode(), headers | {"Content-Type": "application/json"})

    def send_bytes(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

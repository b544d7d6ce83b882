"""A Hugging Face Hub on this machine: as much of it as uploading and downloading small files needs."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "a" * 40


class Hub(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, dict[str, bytes]] = {}
        self.made: list[dict] = []
        self.requests: list[str] = []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        length = headers.pop("length", len(body))
        for name, value in {"Content-Length": length, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self):
        self.server.requests.append(self.path)
        body = self.body()
        if self.headers.get("Authorization") != "Bearer hf_right":
            return self.answer(401, {"error": "wrong token"})
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.server.made.append({**asked, "repository": name})
            self.server.files.setdefault(name, {})
            return self.answer(200, {"url": f"{self.server.address}/{name}"})
        name, _, rest = self.path.removeprefix("/api/models/").partition("/")
        name = f"{name}/{rest.split('/')[0]}"
        if "/preupload/" in self.path:
            wanted = json.loads(body)["files"]
            modes = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in wanted]
            return self.answer(200, {"files": modes})
        if "/commit/" in self.path:
            for line in body.splitlines():
                one = json.loads(line)
                if one["key"] == "file":
                    self.server.files[name][one["value"]["path"]] = base64.b64decode(one["value"]["content"])
            url = f"{self.server.address}/{name}/commit/{COMMIT}"
            return self.answer(200, {"success": True, "commitOid": COMMIT, "commitUrl": url})
        return self.answer(404, {"error": f"no {self.path}"})

    def do_GET(self):
        self.server.requests.append(self.path)
        owner, repository, *rest = self.path.strip("/").split("/")
        files = self.server.files.get(f"{owner}/{repository}")
        if files is None:
            return self.answer(404, X_Error_Code="RepoNotFound")
        if rest[:1] != ["resolve"] or rest[2] not in files:
            return self.answer(404, X_Error_Code="EntryNotFound")
        content = files[rest[2]]
        sum_ = hashlib.sha256(content).hexdigest()
        return self.answer(200, content, ETag=f'"{sum_}"', X_Repo_Commit=COMMIT)

    do_HEAD = do_GET  # noqa: N815


@contextmanager
def running_hub():
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()

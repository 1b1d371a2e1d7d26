"""The metadata servers of three clouds, on a real socket of this machine, and the ways in which they fail."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

MACHINE = "bench-7"
TOKEN = "AQAEAFake-Token_0123456789=="
TROUBLES = ("hang", "garbage", "500", "reset", "endless")
"""Ways to fail: no answer, random bytes, status 500, a closed connection, an endless answer."""


@dataclass
class FakeCloud:
    """One server that answers as the cloud `name`; without a name it answers 404."""

    name: str = ""
    trouble: str = ""
    """One of TROUBLES; empty: it works."""
    noticed: bool = False
    """Whether it announces a preemption."""
    flag: Path | None = None
    """A file whose existence announces a preemption, for tests that decide in another process."""
    others: bool = False
    """Whether Azure's event is about another machine."""
    server: ThreadingHTTPServer = field(init=False)

    def __post_init__(self) -> None:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.serve(self)

            def do_PUT(self) -> None:
                fake.serve(self)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def planned(self) -> bool:
        """Whether the machine is to be taken away."""
        return self.noticed or (self.flag is not None and self.flag.exists())

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request, or fail as `trouble` says."""
        with contextlib.suppress(OSError):
            if self.trouble:
                self._fail(request)
            else:
                self._send(request, *self._answer(request))

    def _send(self, request: BaseHTTPRequestHandler, status: int, text: str, headers: dict[str, str]) -> None:
        body = text.encode()
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def _answer(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        say = {"gcp": self._gcp, "aws": self._aws, "azure": self._azure}.get(self.name)
        return say(request) if say else (404, "not found", {})

    def _gcp(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        if request.headers.get("Metadata-Flavor") != "Google":
            return 403, "Forbidden", {}
        if urlsplit(request.path).path != "/computeMetadata/v1/instance/preempted":
            return 404, "not found", {"Metadata-Flavor": "Google"}
        return 200, "TRUE" if self.planned else "FALSE", {"Metadata-Flavor": "Google"}

    def _aws(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        if request.command == "PUT" and request.path == "/latest/api/token":
            wanted = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return (200, TOKEN, {}) if wanted else (400, "Bad Request", {})
        if request.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            return 401, "Unauthorized", {}
        if request.path == "/latest/meta-data/spot/instance-action" and self.planned:
            return 200, json.dumps({"action": "terminate", "time": "2026-11-21T12:02:00Z"}), {}
        return 404, "<html>404 - Not Found</html>", {}

    def _azure(self, request: BaseHTTPRequestHandler) -> tuple[int, str, dict[str, str]]:
        if request.headers.get("Metadata") != "true":
            return 400, json.dumps({"error": "Bad request. Required metadata header not specified"}), {}
        path = urlsplit(request.path).path
        if path == "/metadata/instance":
            return 200, json.dumps({"compute": {"name": MACHINE, "vmSize": "Standard_NC4as_T4_v3"}}), {}
        if path == "/metadata/scheduledevents":
            return 200, json.dumps({"DocumentIncarnation": 1, "Events": self._events()}), {}
        return 404, "", {}

    def _events(self) -> list[dict[str, Any]]:
        base = {
            "EventId": "f020ba2e",
            "ResourceType": "VirtualMachine",
            "NotBefore": "Sat, 21 Nov 2026 12:00:30 GMT",
        }
        passing = {**base, "EventType": "Freeze", "Resources": [MACHINE]}
        mine = {**base, "EventType": "Preempt", "Resources": ["bench-8" if self.others else MACHINE]}
        return [passing, mine] if self.planned else [passing]

    def _fail(self, request: BaseHTTPRequestHandler) -> None:
        if self.trouble == "hang":
            time.sleep(30)
        elif self.trouble == "garbage":
            request.wfile.write(os.urandom(2000))
        elif self.trouble == "500":
            self._send(request, 500, "TRUE", {"Metadata-Flavor": "Google"})
        elif self.trouble == "reset":
            request.connection.close()
        elif self.trouble == "endless":
            self._pour(request)
        request.close_connection = True

    def _pour(self, request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\n\r\n")
        while True:
            request.wfile.write(b"TRUE" * 4096)


@contextlib.contextmanager
def fake_cloud(name: str = "", **fields: Any) -> Iterator[FakeCloud]:
    """A server that runs while the block lasts."""
    fake = FakeCloud(name, **fields)
    thread = Thread(target=fake.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.server.shutdown()
        fake.server.server_close()


def servers(fake: FakeCloud) -> dict[str, str]:
    """Environment variables that send requests for all three clouds to this server."""
    return {f"LOOP_METADATA_{name}": fake.url for name in ("GCP", "AWS", "AZURE")}

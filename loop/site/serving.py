"""A folder of pages on a port of this machine: loopback only, nothing above the folder, no other host's name."""

import os
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from loop.base.errors import UsageError
from loop.base.interrupts import check

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
"""Names by which a browser of this machine may ask: any other is a page elsewhere that points its name here."""
POLICY = "Content-Security-Policy"
RULES = {
    POLICY: "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""What a browser is told of every page: nothing from elsewhere, no scripts but the site's own."""
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".txt": "text/plain"}
QUIET_S = 30.0
"""Seconds after which a connection that says nothing is closed."""
REPORT = ".report.html"
"""Ending of pages that hold their own script, and a policy of their own that allows that very one."""


class Server(ThreadingHTTPServer):
    """Serves one folder. Raises LoopError where the port cannot be had."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = Path(os.path.realpath(folder))
        try:
            super().__init__((ADDRESS, port), Pages)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = "loop catalog serve --port 0   (any free port)"
            raise UsageError(f"port {port} of {ADDRESS} cannot be used: {reason}", hint=hint) from error

    @property
    def url(self) -> str:
        """Where the first page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def service_actions(self) -> None:
        """Look for signals, between two requests."""
        check()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away says nothing of us."""


class Pages(SimpleHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    timeout = QUIET_S
    server_version, sys_version = "loop", ""
    extensions_map = {ending: f"{kind}; charset=utf-8" for ending, kind in TYPES.items()}  # noqa: RUF012

    def __init__(self, request: Any, client_address: Any, server: Server) -> None:
        super().__init__(request, client_address, server, directory=str(server.folder))

    def do_GET(self) -> None:
        """A page."""
        if self._allowed():
            super().do_GET()

    def do_HEAD(self) -> None:
        """Its head."""
        if self._allowed():
            super().do_HEAD()

    def _allowed(self) -> bool:
        """Whether the question is by our own name, and for a file below the folder; else it is answered here."""
        if self.headers.get("Host", "").lower() not in {f"{name}:{self.server.server_port}" for name in NAMES}:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to 127.0.0.1 only")
            return False
        if not self._is_there():
            self.send_error(HTTPStatus.NOT_FOUND, "There is no such page")
            return False
        return True

    def _is_there(self) -> bool:
        """Whether what is asked for is below the folder, links followed; what is no name of a file is not."""
        try:
            path = Path(os.path.realpath(self.translate_path(self.path), strict=True))
        except (OSError, ValueError):
            return False
        return path.is_relative_to(self.server.folder)

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        """No lists of files."""
        self.send_error(HTTPStatus.NOT_FOUND, "There is no such page")

    def end_headers(self) -> None:
        """Rules with every answer; of a line that is no question there is no page."""
        own = getattr(self, "path", "").partition("?")[0].endswith(REPORT)
        for name, value in RULES.items():
            if not own or name != POLICY:
                self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Pages are not logged."""

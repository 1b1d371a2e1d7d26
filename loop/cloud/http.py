"""One request to a metadata server, over by a fixed moment whatever the server does.

`urllib` bounds each read, not the whole: a server that sends a byte a second holds it for hours.
"""

import http.client
import io
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

LARGEST = 1 << 16
"""Bytes of an answer that are read; a metadata server's are a few hundred."""


class NoReply(Exception):
    """Nobody answered, or not in time, or not in HTTP; the message says which."""


@dataclass(frozen=True)
class Reply:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    text: str


class _Bounded(io.RawIOBase):
    """Reads from a socket until a moment of the monotonic clock, then raises TimeoutError."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection, self._end = connection, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("too slow")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        """The stream, buffered: all that `http.client.HTTPResponse` asks of a socket."""
        return io.BufferedReader(self)


def ask(base: str, path: str, headers: Mapping[str, str], *, limit_s: float, method: str = "GET") -> Reply:
    """One answer, all of it within `limit_s` seconds (a host name's look-up excepted). Raises NoReply."""
    end = time.monotonic() + limit_s
    try:
        where = urlsplit(base)
        address = (where.hostname or "", where.port or 80)
        with socket.create_connection(address, timeout=limit_s) as connection:
            connection.sendall(_request(method, path, where.netloc, headers))
            return _reply(connection, method, end)
    except TimeoutError as error:
        raise NoReply(f"{base} did not answer within {limit_s:g} s") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NoReply(f"{base}: {reason}") from error


def _request(method: str, path: str, host: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _reply(connection: socket.socket, method: str, end: float) -> Reply:
    response = http.client.HTTPResponse(_Bounded(connection, end), method=method)  # type: ignore[arg-type]
    with response:
        response.begin()
        text = response.read(LARGEST).decode(errors="replace")
        named = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, named, text)

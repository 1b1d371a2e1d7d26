"""One request to a metadata server, over by a fixed moment whatever the server does."""

import contextlib
import http.client
import socket
import threading
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


def ask(base: str, path: str, headers: Mapping[str, str], *, limit_s: float, method: str = "GET") -> Reply:
    """One answer, all of it within `limit_s` seconds (a host name's look-up excepted). Raises NoReply."""
    begun, where = time.monotonic(), urlsplit(base)
    try:
        with contextlib.closing(
            http.client.HTTPConnection(where.hostname or "", where.port, timeout=limit_s)
        ) as to:
            to.connect()
            # A time-out bounds each read alone: a server that sends a byte a second would hold it for hours.
            hang_up = threading.Timer(limit_s, _shut, [to.sock])
            hang_up.start()
            try:
                to.request(method, path, headers=dict(headers))
                response = to.getresponse()
                text = response.read(LARGEST).decode(errors="replace")
            finally:
                hang_up.cancel()
            named = {name.lower(): value for name, value in response.getheaders()}
            if time.monotonic() - begun >= limit_s:
                raise TimeoutError
            return Reply(response.status, named, text)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if time.monotonic() - begun >= limit_s:
            raise NoReply(f"{base} did not answer within {limit_s:g} s") from error
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise NoReply(f"{base}: {reason}") from error


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

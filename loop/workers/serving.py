"""The child's side of the wire, for judge and worker alike: requests in, replies out, until the parent is gone."""

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from loop.base.linux import bound_memory
from loop.calls.own_modules import OWN
from loop.calls.refusal import Refused
from loop.workers.wire import No, Request, read_request, reply_line

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
LONGEST = 1000
"""Characters of a message that are passed on: an exception may hold a whole tensor."""
Answers = Mapping[type[Request[Any]], Callable[[Any], object]]
"""Type of a request to the function that answers it."""


def serve(answers: Answers, reply_fd: int, respond: Callable[[Answers, Request[Any]], object]) -> None:
    """Answer requests from standard input until they end."""
    bound_memory()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # Also while we are stopped and could not see that requests ended.
    os.set_inheritable(reply_fd, False)
    known = {kind.__name__: kind for kind in answers}
    with os.fdopen(_take_requests(), "r") as requests, _open_replies(reply_fd) as replies:
        for line in requests:
            replies.write(reply_line(respond(answers, read_request(line, known))))
            replies.flush()


def answer(answers: Answers, request: Request[Any]) -> object:
    """The reply to one request; No where it is refused."""
    try:
        return answers[type(request)](request)
    except Refused as error:
        return No(str(error)[:LONGEST], error.cause, error.code, error.seed)
    except Exception as error:
        declined = isinstance(error, NotImplementedError)  # In so many words, as an error number does.
        return No(described(error), "declined" if declined else "raised", type(error).__name__)


def described(error: Exception) -> str:
    """An exception in one line: type, first line of its text, and where in the target's own files."""
    frames = traceback.extract_tb(error.__traceback__)
    folders = OWN.folders or [sys.path[0] or os.curdir]
    own = [frame for frame in frames if any(map(Path(frame.filename).is_relative_to, folders))]
    text = OWN.said(str(error))[:LONGEST].strip().splitlines()
    place = f" ({Path(own[-1].filename).resolve().name}:{own[-1].lineno})" if own else ""
    return f"{type(error).__name__}{f': {text[0]}' if text else ''}{place}"


def prctl(option: int, value: int) -> None:
    """A wish to the kernel, where there is such a call."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _open_replies(handle: int) -> IO[str]:
    """Where replies go; what is no Unicode, such as half a file name in an error, becomes question marks."""
    return os.fdopen(handle, "w", encoding="utf-8", errors="replace")


def _take_requests() -> int:
    """Requests on a descriptor of our own: a variant that reads standard input must find it empty."""
    requests, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests

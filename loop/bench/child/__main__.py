"""The child process: one JSON request a line in, one JSON reply a line out, until the parent is gone."""

import hashlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import IO, Any

from loop.bench.child import clock, variants
from loop.bench.child.refusal import Refused


class Candidate:
    """Answers requests about one variant."""

    def __init__(self) -> None:
        self.loaded: variants.Loaded | None = None
        self.prepared: dict[str, variants.Prepared] = {}
        self.judge: Any = None

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load a variant."""
        self.loaded = variants.load(request)
        return {}

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compute one output into its file, twice: the digests of both."""
        prepared = self._prepare(request["call"])
        digests = []
        for _ in range(2):
            prepared.poison()
            prepared.run()
            output = prepared.output()
            digests.append(hashlib.sha256(output).hexdigest())
        Path(request["call"]["output"]["path"]).write_bytes(output)
        return {"digests": digests}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Bring a call's inputs into memory and run it once; the memory that took."""
        prepared = self._prepare(request["call"])
        self.prepared[request["call"]["key"]] = prepared
        return {"peak_bytes": clock.first_call_bytes(prepared)}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time a prepared call for some seconds."""
        return clock.time_segment(self.prepared[request["key"]], request["seconds"])

    def _prepare(self, call: dict[str, Any]) -> variants.Prepared:
        if self.loaded is None:
            raise Refused("nothing is loaded")
        return self.loaded.prepare(call)

    def start_judge(self, request: dict[str, Any]) -> dict[str, Any]:
        """Become the judge of a target."""
        sys.path.insert(0, request["folder"])
        from loop.bench.child import judge

        self.judge = judge.start(request)
        return {}

    def expect(self, request: dict[str, Any]) -> dict[str, Any]:
        """Judge: make inputs and the right answer."""
        return self.judge.expect(request)  # type: ignore[no-any-return]

    def compare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Judge: hold an output against the right answer."""
        return self.judge.compare(request)  # type: ignore[no-any-return]

    def examine(self, request: dict[str, Any]) -> dict[str, Any]:
        """One check of the environment."""
        from loop.bench.child import environment

        return environment.CHECKS[request["check"]](request)


REQUESTS = ("load", "call", "prepare", "time", "start_judge", "expect", "compare", "examine")


def answer(candidate: Candidate, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request: `ok` with what was found, `refused` with a reason, or `bug` with a traceback."""
    if request["do"] not in REQUESTS:
        return {"status": "bug", "message": f"unknown request {request['do']}"}
    try:
        return {"status": "ok", **getattr(candidate, request["do"])(request)}
    except Refused as error:
        return {"status": "refused", "message": str(error)}
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        text = str(error).strip().splitlines()
        message = f"{type(error).__name__}: {text[0] if text else ''} ({where})"
        return {"status": "refused", "message": message, "traceback": traceback.format_exc()}


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Answer until the requests end."""
    candidate = Candidate()
    for line in requests:
        replies.write(json.dumps(answer(candidate, json.loads(line)), ensure_ascii=False) + "\n")
        replies.flush()


def keep_to(cores: str) -> None:
    """Stay on the named cores; an empty list leaves the choice to the system."""
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})


def open_replies(handle: int) -> IO[str]:
    """Where replies go; what is no Unicode, such as half a file name in an error, becomes question marks."""
    return os.fdopen(handle, "w", encoding="utf-8", errors="replace")


def take_requests() -> int:
    """Requests on a descriptor of our own: a variant that reads standard input must find it empty."""
    requests, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return requests


if __name__ == "__main__":
    reply_fd = int(sys.argv[1])
    keep_to(sys.argv[2])
    os.set_inheritable(reply_fd, False)
    with os.fdopen(take_requests(), "r") as requests, open_replies(reply_fd) as replies:
        serve(requests, replies)

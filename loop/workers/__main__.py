"""The child process: one JSON request a line in, one JSON reply a line out, until the parent is gone."""

import contextlib
import ctypes
import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path
from typing import IO, Any

from loop.calls import lost, variants
from loop.calls.counters import Counters
from loop.calls.orders import Bell, Nothing, Shared, Stage, obey
from loop.calls.prepared import Loaded, Prepared
from loop.calls.refusal import DECLINED, Refused
from loop.calls.seal import Seal
from loop.workers import checking

COUNTED_CALLS = 20
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


class Candidate:
    """Answers requests about one variant, or as the judge."""

    def __init__(self, arena: int = -1, bell: tuple[int, int] | None = None) -> None:
        self.arena, self.bell = arena, Bell(bell)
        """The file of the memory that is shared with the judge, and how we wait for orders about it."""
        self.stage_: Stage = Nothing()
        self.shared: Shared | None = None
        self.inputs = 0
        self.slow = 0.0
        self.loaded: Loaded | None = None
        self.seal: Seal | None = None
        self.last: tuple[dict[str, Any], str, Prepared] | None = None
        self.prepared: dict[str, Prepared] = {}
        self.judge: Any = None
        self.draw = random.Random(0)
        self.erring: dict[str, Candidate] = {}
        self.dry: Any = None

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load a variant, once what it is timed with is sealed."""
        variants.ready(request)
        self.seal = Seal()
        self.loaded, self.last = variants.load(request), None
        self.slow = request.get("slow") or 0.0
        if request.get("mistake"):
            self.loaded = self._mistaken(request["mistake"])
        return {}

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compute one output twice at least: its digests, the files of those that differ, what else was noticed.

        Half the time there is a call on other values before, so that nobody can count which calls are looked at.
        """
        if request.get("mistake"):
            return self._err(request.pop("mistake")).call(request)
        call, layout = request["call"], request.get("layout", "contiguous")
        prepared = self._prepare(call, layout)
        hurried = request.get("hurried", False)
        if layout == "contiguous" and not hurried and self.draw.randrange(2):
            prepared.jumble(self.draw)
            prepared.bind()()
        found = checking.Check(prepared, self.draw, hurried=hurried).run()
        outputs = {**found.outputs, **found.enclosed}
        paths = [f"{call['output']['path']}.{number}" for number in range(len(outputs))]
        for path, output in zip(paths, outputs.values(), strict=True):
            Path(path).write_bytes(output)
        return {
            "outputs": paths,
            "digests": list(found.outputs),
            "flaky": len(found.outputs) > 1,
            "changed": sorted(found.changed),
            "writes": found.writes,
            "reads": found.reads,
            "unwritten": found.unwritten,
            "broken": self._broken(),
        }

    def _err(self, mistake: dict[str, Any]) -> "Candidate":
        """The same variant with a mistake, for its calls alone; what it remembers is kept from call to call."""
        from loop import mistakes as controls

        controls.clean()
        if mistake["name"] not in self.erring:
            other = self.erring[mistake["name"]] = Candidate()
            other.seal, other.loaded = self.seal, self._mistaken(mistake)
        return self.erring[mistake["name"]]

    def _mistaken(self, mistake: dict[str, Any]) -> Loaded:
        from loop import mistakes as controls

        return controls.wrap(self._loaded(), mistake)

    def stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Take a call's place in the shared memory, and make it once: how results are had, what it took."""
        from loop.workers import staging

        self.unstage({})
        self.shared = Shared(self.arena, request["size"])
        self.inputs = len(request["call"]["inputs"])
        mistake = request.get("mistake")
        loaded = self._err(mistake)._loaded() if mistake else self._loaded()
        self.stage_, told = staging.stage(loaded, self.shared, request, self.slow)
        return told

    def obey(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out the judge's orders about the staged call until it says to leave."""
        if self.shared is None:
            self.shared = Shared(self.arena, 0)
        if "empty" in request:
            from loop.workers import staging

            self.stage_ = staging.empty(request["empty"])
        obey(self.shared, self.bell, self.stage_, self.inputs, request["seen"])
        return {"broken": self._broken(), "writes": self.stage_.strays}

    def unstage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Let go of the staged call."""
        self.stage_.close()
        self.stage_, self.shared, self.inputs = Nothing(), None, 0
        return {}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """Bring a call's inputs into memory of our own and make it once, for those who look on."""
        call = request["call"] | {"inputs": [{**tensor, "offset": 0} for tensor in request["call"]["inputs"]]}
        prepared = self.prepared[call["key"]] = self._loaded().prepare(call)
        prepared.bind()()
        return {}

    def count(self, request: dict[str, Any]) -> dict[str, Any]:
        """Hardware counters over some calls of a prepared call; why there are none where the system gives none."""
        run = self.prepared[request["key"]].bind()
        run()
        with Counters() as counters:
            if not counters.open():
                return {"counters": {}, "why": counters.why_not, "calls": 0}
            counters.start()
            for _ in range(COUNTED_CALLS):
                run()
            return {"counters": counters.stop(), "why": "", "calls": COUNTED_CALLS}

    def mark(self, request: dict[str, Any]) -> dict[str, Any]:
        """One call of a prepared call between the marks that a profiler waits for."""
        from loop.workers import watched

        watched.marked(self.prepared[request["key"]])
        return {}

    def trace(self, request: dict[str, Any]) -> dict[str, Any]:
        """Kernels of one call of a prepared call, by torch's own profiler."""
        from loop.workers import watched

        return {"kernels": watched.traced(self.prepared[request["key"]])}

    def once(self, request: dict[str, Any]) -> dict[str, Any]:
        """One call that nothing stands beside, for a sanitizer."""
        from loop.workers import watched

        watched.once(self._loaded(), request["call"])
        return {}

    def launches(self, request: dict[str, Any]) -> dict[str, Any]:
        """Which kernels a call would launch, by an emulated library in a dry run: load nothing else here."""
        from loop.workers import dry

        self.dry = self.dry or dry.DryRun(request)
        return self.dry.launches(request["call"])  # type: ignore[no-any-return]

    def _loaded(self) -> Loaded:
        if self.loaded is None:
            raise Refused("nothing is loaded")
        return self.loaded

    def _prepare(self, call: dict[str, Any], layout: str) -> Prepared:
        """The last prepared call refilled when only the values differ, so that an address says nothing of them."""
        tensors = [(tensor["shape"], tensor["dtype"]) for tensor in (*call["inputs"], call["output"])]
        shape = {"layout": layout, "attributes": call["attributes"], "tensors": tensors}
        if self.last is not None and self.last[0] == shape:
            self.last[2].refill(call)
            return self.last[2]
        self.last = None  # Its memory first: there may be too little for both.
        prepared = self._loaded().prepare(call, layout)
        self.last = (shape, layout, prepared)
        return prepared

    def _broken(self) -> list[str]:
        return self.seal.broken() if self.seal else []

    def start_judge(self, request: dict[str, Any]) -> dict[str, Any]:
        """Become the judge of a target, whose memory and descriptors are closed to those that it judges."""
        prctl(PR_SET_DUMPABLE, 0)
        sys.path.insert(0, request["folder"])
        from loop.workers import judge

        self.judge = judge.start(request)
        return {}

    def judging(self, request: dict[str, Any]) -> dict[str, Any]:
        """Judge: whatever it is asked by name."""
        return self.judge.answer(request)  # type: ignore[no-any-return]

    def examine(self, request: dict[str, Any]) -> dict[str, Any]:
        """One check of the environment."""
        from loop.workers import environment

        return environment.CHECKS[request["check"]](request)


OWN = (
    *("load", "call", "stage", "obey", "unstage", "prepare", "count", "mark", "trace", "once"),
    *("launches", "start_judge", "examine"),
)
CALLS = ("load", "call", "stage", "obey", "prepare", "count")
"""Requests that may lose the device, and after which others come."""
LONGEST = 1000
"""Characters of a message that are passed on: an exception may hold a whole tensor."""
JUDGING = ("expect", "compare", "discard", "tells", "relate", "related")


def answer(candidate: Candidate, request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one request: `ok` with what was found, `refused` with a reason, or `bug`.

    `how` it was refused: `declined` by the variant in so many words, `raised` for any other exception of its own,
    `unusable` for what the worker found of its outcome.
    """
    do = request["do"]
    if do not in (*OWN, *JUDGING):
        return {"status": "bug", "message": f"unknown request {do}"}
    try:
        return {"status": "ok", **getattr(candidate, "judging" if do in JUDGING else do)(request)}
    except Refused as error:
        how = "declined" if isinstance(error, DECLINED) else "unusable"
        return {"status": "refused", "message": str(error)[:LONGEST], "how": how}
    except Exception as error:
        how = "declined" if isinstance(error, DECLINED) else "raised"
        return {"status": "refused", "message": described(error), "how": how}


def described(error: Exception) -> str:
    """An exception in one line: type, first line, and where; the target's own file before a library's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(sys.path[0] or os.curdir)]
    place = (own or frames)[-1]
    text = str(error)[:LONGEST].strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''} ({Path(place.filename).name}:{place.lineno})"


def serve(candidate: Candidate, requests: IO[str], replies: IO[str], cores: str = "") -> None:
    """Answer until the requests end, or until a kernel crashed: then the process ends instead of a reply.

    Once it has loaded, it keeps to these `cores`: several processes load at once, and would crowd there.
    """
    for line in requests:
        request = json.loads(line)
        if request["do"] != "load":
            keep_to(cores)
            cores = ""
        reply = answer(candidate, request)
        if reply["status"] == "refused" and request["do"] in CALLS:
            why = lost.why_lost()
            if why:
                lost.leave(reply["message"], why)
        replies.write(json.dumps(reply, ensure_ascii=False) + "\n")
        replies.flush()


def keep_to(cores: str) -> None:
    """Stay on the named cores with all threads; an empty list leaves the choice to the system."""
    given = {int(core) for core in cores.split(",") if core}
    for task in map(int, os.listdir("/proc/self/task")) if given else ():
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            if not os.sched_getaffinity(task) <= given:
                os.sched_setaffinity(task, given)


def die_with_parent() -> None:
    """Linux: be killed when the parent is, also while we are stopped and could not see that requests ended."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    """A wish to the kernel, where there is such a call."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


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
    die_with_parent()
    os.set_inheritable(reply_fd, False)
    arena_fd, bell_fds = int(sys.argv[3]), [int(handle) for handle in sys.argv[4].split(",") if handle]
    for handle in (arena_fd, *bell_fds):
        os.set_inheritable(handle, False)
    candidate = Candidate(arena_fd, (bell_fds[0], bell_fds[1]) if bell_fds else None)
    with os.fdopen(take_requests(), "r") as requests, open_replies(reply_fd) as replies:
        serve(candidate, requests, replies, sys.argv[2])

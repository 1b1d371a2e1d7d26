"""A worker's program: `python -m loop.workers.worker_program REPLIES CORES ARENA [BELL BELL]`.

It holds one variant. It imports neither torch nor pydantic before a variant asks for it, so that it starts in tens
of milliseconds.
"""

import contextlib
import math
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.calls import lost, variants
from loop.calls.bell import WorkerBell
from loop.calls.call import Call
from loop.calls.counters import Counters
from loop.calls.orders import Nothing, Shared, obey
from loop.calls.orders import Stage as StagedCall
from loop.calls.prepared import Loaded, Prepared
from loop.calls.refusal import Refused
from loop.calls.seal import Seal
from loop.calls.waits import tasks_of
from loop.workers import checking
from loop.workers import worker_messages as messages
from loop.workers.serving import Answers, answer, serve
from loop.workers.wire import Count, Done, No, Request

COUNTED_CALLS = 20


class Candidate:
    """A loaded variant, and what it remembers from check to check."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.draw = random.Random()
        self.called = False
        self.last: tuple[object, Prepared] | None = None
        """What the last prepared call looked like, and the call."""
        self.slow = False
        """Whether that call was checked, and is slow."""

    def check(self, request: messages.Compute) -> checking.CheckFindings:
        """Compute one output twice at least; of a slow call on other values than before once.

        Half the time there is a call on other values before, so that nobody can count which calls are looked at.
        The first call of the process is always looked at: there the call on other values comes after it.
        """
        prepared, first, self.called = self.prepare(request.call, request.layout), not self.called, True
        if first:
            self.draw.seed(request.call.key)
        jumbled = request.layout == "contiguous" and not (request.hurried or request.once)
        if jumbled and not first and self.draw.randrange(2):
            prepared.jumble(self.draw)
            prepared.bind()()
        again = self.slow or request.once
        check = checking.Check(
            prepared, self.draw, hurried=request.hurried, again=again, jumbled=jumbled and first
        )
        found = check.run()
        self.slow = check.slow_s < check.quickest_s < math.inf
        return found

    def prepare(self, call: Call, layout: str) -> Prepared:
        """The last prepared call refilled when only the values differ, so that an address says nothing of them."""
        shapes = [(tensor.shape, tensor.dtype) for tensor in (*call.inputs, *call.outputs)]
        form = (layout, call.attributes, call.structure_digest, call.seed, shapes)
        if self.last is not None and self.last[0] == form:
            self.last[1].refill(call)
            return self.last[1]
        self.last, self.slow = None, False  # Its memory first: there may be too little for both.
        prepared = self.loaded.prepare(call, layout)
        self.last = (form, prepared)
        return prepared


class Worker:
    """What one process holds: a variant, and a call of it that is staged or prepared."""

    def __init__(self, arena: int, bell: tuple[int, int] | None) -> None:
        self.arena, self.bell = arena, WorkerBell(bell)
        """The file of the memory that is shared with the judge, and how we wait for orders about it."""
        self.stage_: StagedCall = Nothing()
        self.shared: Shared | None = None
        self.inputs = 0
        self.slow = 0.0
        self.seal: Seal | None = None
        self.candidates: dict[str, Candidate] = {}
        """The variant as it was loaded, under no name, and with mistakes by their names."""
        self.prepared: Prepared | None = None
        self.dry: Any = None

    def load(self, request: messages.Load) -> Done:
        """Load a variant, once what it is timed with is sealed."""
        variants.ready(request.variant, request.threads, request.device)
        self.seal = Seal()
        loaded = variants.load(request.variant, request.folder, request.device)
        self.slow = request.slow
        self.candidates[""] = Candidate(_mistaken(loaded, request.mistake) if request.mistake else loaded)
        return Done()

    def compute(self, request: messages.Compute) -> messages.Computed:
        """Compute one output: its digests, the files of those that differ, what else was noticed."""
        found = self._candidate(request.mistake).check(request)
        outputs = {**found.outputs, **found.enclosed}
        paths = [f"{request.call.output.path}.{number}" for number in range(len(outputs))]
        for path, output in zip(paths, outputs.values(), strict=True):
            Path(path).write_bytes(output)
        return messages.Computed(
            outputs=tuple(paths),
            digests=tuple(found.outputs),
            turns=tuple(messages.Turn(*map(Count, found.turns[digest])) for digest in outputs),
            changed=tuple(sorted(found.changed)),
            writes=tuple(found.writes),
            reads=found.reads,
            unwritten=found.unwritten,
            broken=self._broken(),
        )

    def _candidate(self, mistake: messages.Mistake | None = None) -> Candidate:
        """The variant; with a mistake what erring remembers is kept from call to call."""
        if "" not in self.candidates:
            raise Refused("nothing is loaded")
        if mistake is None:
            return self.candidates[""]
        from loop import mistakes

        mistakes.clean()
        if mistake["name"] not in self.candidates:
            self.candidates[mistake["name"]] = Candidate(_mistaken(self.candidates[""].loaded, mistake))
        return self.candidates[mistake["name"]]

    def stage(self, request: messages.Stage) -> messages.Staged:
        """Take a call's place in the shared memory, and make it once."""
        from loop.workers import staging

        self.unstage(messages.Unstage())
        self.shared = Shared(self.arena, request.size)
        self.inputs = len(request.call.inputs)
        loaded = self._candidate(request.mistake).loaded
        self.stage_, peak = staging.stage(loaded, self.shared, request, self.slow)
        return messages.Staged(None if peak is None else Count(peak))

    def obey(self, request: messages.Obey) -> messages.Obeyed:
        """Carry out the judge's orders about the staged call until it says to leave."""
        if self.shared is None:
            self.shared = Shared(self.arena, 0)
        if request.empty is not None:
            from loop.workers import staging

            self.stage_ = staging.empty(request.empty)
        obey(self.shared, self.bell, self.stage_, self.inputs, request.seen)
        return messages.Obeyed(self._broken(), tuple(self.stage_.strays))

    def unstage(self, request: messages.Unstage) -> Done:
        """Let go of the staged call."""
        self.stage_.close()
        self.stage_, self.shared, self.inputs = Nothing(), None, 0
        return Done()

    def prepare(self, request: messages.Prepare) -> Done:
        """Bring a call's inputs into memory of our own and make it once."""
        self.prepared = self._candidate().loaded.prepare(request.call.at_start())
        self.prepared.bind()()
        return Done()

    def _ready(self) -> Prepared:
        if self.prepared is None:
            raise Refused("no call is prepared")
        return self.prepared

    def count(self, request: messages.CountCalls) -> messages.Counts:
        """Hardware counters over some calls; why there are none where the system gives none."""
        run = self._ready().bind()
        run()
        with Counters() as counters:
            if not counters.open():
                return messages.Counts({}, counters.why_not, Count(0))
            counters.start()
            for _ in range(COUNTED_CALLS):
                run()
            counted = {name: None if n is None else Count(n) for name, n in counters.stop().items()}
            return messages.Counts(counted, "", Count(COUNTED_CALLS))

    def mark(self, request: messages.Mark) -> Done:
        """One call between the marks that a profiler waits for."""
        from loop.workers import watched

        watched.marked(self._ready())
        return Done()

    def trace(self, request: messages.Trace) -> messages.Kernels:
        """Kernels of one call, by torch's own profiler."""
        from loop.workers import watched

        return watched.traced(self._ready())

    def once(self, request: messages.Once) -> Done:
        """One call that nothing stands beside, for a sanitizer."""
        from loop.workers import watched

        watched.once(self._candidate().loaded, request.call)
        return Done()

    def launches(self, request: messages.Launches) -> messages.Launched:
        """Which kernels a call would launch, by an emulated library in a dry run: load nothing else here."""
        from loop.workers import dry

        self.dry = self.dry or dry.DryRun(request)
        launched: messages.Launched = self.dry.launches(request.call)
        return launched

    def _broken(self) -> tuple[str, ...]:
        return tuple(self.seal.broken()) if self.seal else ()


def _mistaken(loaded: Loaded, mistake: messages.Mistake) -> Loaded:
    if "structured" in mistake and isinstance(loaded, variants.Importable):
        from loop.mistakes import answers

        return answers.wrap(loaded, mistake)
    from loop import mistakes

    return mistakes.wrap(loaded, mistake)


LOSING = (messages.Load, messages.Compute, messages.Stage, messages.Obey, messages.Prepare, messages.CountCalls)
"""Requests that may lose the device, and after which others come."""


def keep_to(cores: str) -> None:
    """Stay on the named cores with all threads and what they started; an empty list leaves it to the system."""
    given = {int(core) for core in cores.split(",") if core}
    for task in tasks_of(os.getpid()) if given else ():
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            if not os.sched_getaffinity(task) <= given:
                os.sched_setaffinity(task, given)


class Responding:
    """How requests are responded to."""

    def __init__(self, cores: str) -> None:
        self.cores = cores
        """Cores that it keeps to once it has loaded: several processes load at once, and would crowd there."""

    def __call__(self, answers: Answers, request: Request[Any]) -> object:
        """The reply. Where a kernel crashed the process ends instead: nothing works on the device any more."""
        if self.cores and not isinstance(request, messages.Load):
            keep_to(self.cores)
            self.cores = ""
        reply = answer(answers, request)
        if isinstance(reply, No) and isinstance(request, LOSING):
            why = lost.why_lost()
            if why:
                lost.leave(reply.message, why)
        return reply


def main(arguments: Sequence[str]) -> None:
    """Answer until the parent is gone."""
    sys.dont_write_bytecode = True  # Nothing is written beside what is judged.
    reply_fd, cores, arena = int(arguments[0]), arguments[1], int(arguments[2])
    bell = [int(handle) for handle in arguments[3:]]
    for handle in (arena, *bell):
        os.set_inheritable(handle, False)
    worker = Worker(arena, (bell[0], bell[1]) if bell else None)
    serve(
        {
            messages.Load: worker.load,
            messages.Compute: worker.compute,
            messages.Stage: worker.stage,
            messages.Obey: worker.obey,
            messages.Unstage: worker.unstage,
            messages.Prepare: worker.prepare,
            messages.CountCalls: worker.count,
            messages.Mark: worker.mark,
            messages.Trace: worker.trace,
            messages.Once: worker.once,
            messages.Launches: worker.launches,
        },
        reply_fd,
        Responding(cores),
    )


if __name__ == "__main__":
    main(sys.argv[1:])

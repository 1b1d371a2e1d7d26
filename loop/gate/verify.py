"""Verify variants: each computes in a worker process; the judge process compares outputs."""

import dataclasses
import os
import random
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from loop.base.errors import WorkFailed
from loop.base.processes import Tick
from loop.calls.call import Call
from loop.model.causes import Cause
from loop.model.dtypes import Layout, is_floating
from loop.model.measurement import BASELINE, Check, Fault, VariantChecks
from loop.model.target import Target, Workload
from loop.model.workloads import count_operations, is_supported, reason_unsupported
from loop.workers.bench import JUDGE_LIMIT_S, Bench, KeptWorker, Side
from loop.workers.judge_messages import Compare, Finding
from loop.workers.judge_process import Unjudged
from loop.workers.messages import CallRange, Compute, Computed
from loop.workers.program import FORGED, Refusal, WorkerLost

LAYOUTS: tuple[Layout, ...] = ("contiguous", "strided", "misaligned", "transposed", "broadcast")
FIRST_CALLS = 2
"""Workloads checked again as first calls of fresh processes. A GPU gets 1: CUDA starts slowly."""
CALL_LIMIT_S = 20.0
"""Smallest time limit of a call, in seconds. A slow reference raises the limit (`call_limit_s`)."""
LONGEST_S = 900.0
"""Largest time limit of a call, in seconds."""
PATIENCE = 100.0
"""Time limit of a call / time of inputs and reference. It is large: naive kernels are slow."""
EMULATED = 5.0
"""Factor on the smallest time limit under the emulator."""
SLOW_S = 5.0
"""Seconds above which a first call includes a one-time setup; later calls are faster."""
LARGE_WORK = 1e6
"""Operations from which a workload's time depends on its work rather than on process start."""
MOST_HUNG = 2
"""Hung checks after which `loop` skips the side's other checks, because each could hang as long."""
SIDE_BY_SIDE = 12
"""Worker processes started ahead of their first call, so that their imports overlap."""
LARGE = 64 << 20
"""Bytes of a call's inputs and outputs above which its files and reference are not kept."""
COPIES, ROOM = 4, 0.25
"""Copies of inputs and outputs that one process may hold; the share of free memory for all processes.
Above that share no process is kept. To start one again costs a third of a second on a GPU."""
UNMOVED = 32.0
"""If the references of two seeds differ by more rounding errors, one output cannot be right for both:
a right kernel may be off by 16 of them on either side."""
OF_ELEMENTS = ("elements", "loose tolerance", "NaN")
"""Causes that say only that elements are wrong."""
VALUE_CAUSES = (*OF_ELEMENTS, "checker", "plain error", "two outputs", "one output")
"""Causes that a dependence on earlier calls may explain."""
Which = Literal["none", "first", "later", "all", "mixed"]


@dataclass(frozen=True)
class Job:
    """The checks to make of one side (a variant or the baseline): workloads, layouts and limits."""

    side: Side
    workloads: Sequence[Workload]
    layouts: bool = True
    """Whether to try other input layouts on one workload of each type, and first calls of fresh
    processes."""
    enough: bool = False
    """Whether the first failure ends the checks of this side."""
    call_limit_s: float | None = None
    """Seconds after which a call counts as hung; None: the limit of `call_limit_s`."""
    control: bool = False
    """True for the control run. Slow control calls run once, because their timing is not used."""
    suspected: bool = False
    """Whether the judge compares wrong outputs with the outputs of known faults."""
    only: frozenset[str] | None = None
    """Names of the workloads that this job checks; None: all. Other jobs check the others."""

    @property
    def own(self) -> list[Workload]:
        """The workloads that this job checks."""
        return [workload for workload in self.workloads if self.only is None or workload.name in self.only]

    @property
    def laid_out(self) -> dict[str, Workload]:
        """Element type to the workload for other layouts: no size is 0, if possible none is 1."""
        if self.side.kind == "command" or not self.layouts:  # A program reads files.
            return {}
        chosen: dict[str, Workload] = {}
        whole = [w for w in self.workloads if is_supported(self.side, w) and 0 not in w.sizes.values()]
        for workload in sorted(whole, key=lambda workload: 1 in workload.sizes.values()):
            chosen.setdefault(workload.dtype, workload)
        return chosen


@dataclass
class TimeAllowance:
    """A budget of seconds for optional workloads; small ones come first."""

    seconds: float
    workloads: Sequence[Workload]
    left_out: list[Workload] = dataclasses.field(default_factory=list)
    """Workloads for which no time was left."""
    begun: float | None = None
    seconds_of_work: float = 0.0
    """Seconds per operation, of the slowest workload so far."""

    def fits(self, target: Target, workload: Workload) -> bool:
        """Whether the time left suffices for a workload. The first call starts the clock."""
        self.begun = self.begun or time.monotonic()
        expected_s = self.seconds_of_work * count_operations(target, workload)
        return time.monotonic() - self.begun + expected_s < self.seconds

    def learn(self, target: Target, workload: Workload, seconds: float) -> None:
        """Record a workload's time. Small workloads do not count, because process start dominates."""
        if count_operations(target, workload) >= LARGE_WORK:
            self.seconds_of_work = max(self.seconds_of_work, seconds / count_operations(target, workload))


def verify(
    bench: Bench, jobs: Sequence[Job], allowance: TimeAllowance | None = None
) -> Generator[Tick, None, tuple[VariantChecks, ...]]:
    """Check each side on its workloads; the result has one entry for each job, in order.

    The order of workloads is random but follows from their seeds; workloads of the `allowance` come last.
    The judge computes the reference twice on the first workload, because a reference that does not repeat
    itself judges nothing. A workload that cannot be judged is skipped. Raises LoopError when the judge is
    lost, and Unjudged where no workload can be judged and no other job judges any.
    """
    checkers = [SideChecker(job, KeptWorker(bench, job.side)) for job in jobs]
    optional = {values_key(workload) for workload in allowance.workloads} if allowance else set()
    every = of_one_shape(workload for job in jobs for workload in job.own)
    groups = [same for same in every if values_key(same[0]) not in optional]
    others = [same for same in every if values_key(same[0]) in optional]

    def concerned(workload: Workload) -> bool:
        return any(checker.concerns(workload) and is_supported(checker.side, workload) for checker in checkers)

    first = next(filter(concerned, chain(*every)), None)
    draw = _draw(chain(*groups))
    draw.shuffle(groups)
    for same in groups:
        draw.shuffle(same)
    groups += others
    unjudged, judged_some = list[Unjudged](), False
    try:
        for checker in checkers[:SIDE_BY_SIDE]:
            checker.worker.start()
        for number, same in enumerate(groups, 1):
            begun = time.monotonic()
            if allowance and same in others and not allowance.fits(bench.target, same[0]):
                allowance.left_out += same
                continue
            for workload in filter(concerned, same):
                try:
                    yield from bench.prepare_answer(workload, is_run_twice=workload is first)
                    judged_some = True
                except Unjudged as why:
                    unjudged.append(why)
                    for checker in checkers:
                        checker.leave(workload, why)
            yield from _check_all(bench, checkers, same, [*chain(*groups[number:])])
            if allowance:
                allowance.learn(bench.target, same[0], time.monotonic() - begun)
        if unjudged and not judged_some and all(job.only is None for job in jobs):
            raise unjudged[0]
        for checker in checkers:
            yield from checker.blame_earlier_calls()
    finally:
        for checker in checkers:  # Kill all first, because a driver takes 0.1 s to end each process.
            checker.worker.kill()
        for checker in checkers:
            checker.worker.close()
    return tuple(checker.checks for checker in checkers)


def _check_all(
    bench: Bench, checkers: Sequence["SideChecker"], same: Sequence[Workload], later: Sequence[Workload]
) -> Generator[Tick, None, None]:
    """Check every side on workloads of the `same` shape, each side in one worker process.

    The worker is closed afterwards if its tensors are large, or if no `later` workload concerns its side.
    """
    call = bench.make_call(same[0], "judge")
    size = call.output.nbytes + sum(tensor.pool_nbytes for tensor in call.inputs)
    crowded = size > LARGE and size * COPIES * len(checkers) > ROOM * bench.free_bytes
    ahead = [checker for checker in checkers if any(map(checker.concerns, same))]
    for checker in checkers:
        if checker in ahead:
            place = ahead.index(checker)
            for following in ahead[place + 1 : place + (2 if crowded else SIDE_BY_SIDE)]:
                following.worker.start()
        for workload in same:
            yield from checker.check(workload)
        if crowded or not any(map(checker.concerns, later)):
            checker.worker.close()
    if size > LARGE:
        for workload in same:
            yield from bench.discard_answer(workload)


def values_key(workload: Workload) -> tuple[str, int]:
    """The identity of a workload: its name and the seed of its values."""
    return workload.name, workload.seed


def of_one_shape(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Group workloads by name: those of a group share their sizes and differ in the seed."""
    wanted: dict[str, dict[int, Workload]] = {}
    for workload in workloads:
        wanted.setdefault(workload.name, {})[workload.seed] = workload
    return [list(seeds.values()) for seeds in wanted.values()]


def _draw(workloads: Iterable[Workload]) -> random.Random:
    """A random generator seeded by the names and seeds of workloads, so that a run repeats."""
    return random.Random(repr([values_key(workload) for workload in workloads]))


def in_order(parts: Sequence[VariantChecks], workloads: Sequence[Workload]) -> VariantChecks:
    """Merge the checks that several jobs made of one side, in the order of the workloads."""
    places = {values_key(workload): place for place, workload in enumerate(workloads)}

    def place(check: Check) -> tuple[int, int]:
        return places.get(values_key(check.workload), len(places)), LAYOUTS.index(check.inputs)

    checks = (check for part in parts for check in part.checks)
    return parts[0].model_copy(update={"checks": tuple(sorted(checks, key=place))})


@dataclass(frozen=True)
class WrongCalls:
    """Which calls of a check gave wrong outputs."""

    which: Which
    """`first`: only the first calls; `later`: only the last calls."""
    fresh: bool
    """Whether the check made the first call of its process."""
    message: str = ""
    """What is wrong with those outputs."""


def cause_of(first: WrongCalls, again: WrongCalls) -> Cause:
    """Whether a failure depends on earlier calls, by a check and its repeat in a fresh process.

    Empty unless both agree, because a race differs by chance from process to process.
    """
    if again.which == "first" and (first.which == "first" or (first.which == "all" and not first.fresh)):
        return "first call"
    kept = first.which == "all" and not first.fresh and again.which in ("none", "later")
    return "later calls" if kept or (first.which == again.which == "later") else ""


class SideChecker:
    """Checks one side (a variant or the baseline) in its worker process, and keeps the checks."""

    def __init__(self, job: Job, worker: KeptWorker) -> None:
        self.bench, self.job, self.side, self.worker = worker.bench, job, job.side, worker
        self.keys = {values_key(workload) for workload in job.own}
        """Keys of the workloads that this job checks."""
        self.laid_out = job.laid_out
        self.found: list[Check] = []
        self.again = set[tuple[str, int]]()
        """Keys of workloads to check again as the first call of a fresh process."""
        if job.layouts and not job.control and not (self.side.kind == "command" or self.side.emulated):
            keys = [values_key(workload) for workload in job.workloads if is_supported(self.side, workload)]
            most = 1 if self.bench.device == "cuda" else FIRST_CALLS
            self.again = set(_draw(job.workloads).sample(keys, min(most, len(keys))))
        self.first_call_s = 0.0
        """Seconds of the most recent call that was the first of its process."""
        self._turns: dict[tuple[tuple[str, int], Layout], WrongCalls] = {}
        """For each failed check (workload key, layout): which of its calls were wrong."""
        self._given: dict[tuple[str, Layout, str], str] = {}
        """Workload name, layout and output digest to the call that first gave this output."""

    @property
    def checks(self) -> VariantChecks:
        """The checks made so far, in the order of the job's workloads."""
        checks = VariantChecks(variant=self.side.name, build_id=self.side.build_id, checks=tuple(self.found))
        return in_order([checks], self.job.workloads)

    def concerns(self, workload: Workload) -> bool:
        """Whether this side still has to be checked on a workload."""
        if values_key(workload) not in self.keys or workload.dtype not in self.side.dtypes:
            return False
        failed = [check for check in self.found if not check.passed]
        return self._hung < MOST_HUNG and not (self.job.enough and failed)

    @property
    def _hung(self) -> int:
        return sum(check.status == "hung" for check in self.found)

    def leave(self, workload: Workload, why: Unjudged) -> None:
        """Record `not judged` for a workload that this side had to be checked on."""
        if self.concerns(workload) and is_supported(self.side, workload):
            self.found.append(Check(workload=workload, status="not judged", message=why.message))
            self.keys.discard(values_key(workload))

    def check(self, workload: Workload) -> Generator[Tick, None, None]:
        """Add the checks of one workload in each of its layouts, if it concerns this side.

        Broadcast inputs that cannot be judged become a note, not a finding.
        """
        layouts = self._layouts(workload)
        if workload.name not in {check.workload.name for check in self.found}:
            # First values of these sizes: contiguous comes last here, and first with the next values. So two sets
            # of values follow each other at the same addresses, and a cache keyed by address fails.
            layouts = layouts[::-1]
        for layout in layouts:
            if not self.concerns(workload):
                return
            try:
                check = yield from self._check(workload, layout)
                if layout == "broadcast" and check.cause in VALUE_CAUSES:
                    yield from self._blame_layout(workload)
                self._add(check)
            except WorkFailed as failed:
                if layout != "broadcast":
                    raise
                self._turns.pop((values_key(workload), layout), None)
                self.bench.notes[f"{self.side.name} on {_place(workload, layout)}: {failed.message}"] = None
        if values_key(workload) in self.again and self.concerns(workload):
            yield from self._check_again(workload)

    def _layouts(self, workload: Workload) -> Sequence[Layout]:
        """The input layouts to try on a workload, without layouts that cannot show a mistake.

        Broadcast is tried with each seed, because each seed broadcasts along another axis.
        """
        chosen, bench = self.laid_out.get(workload.dtype), self.bench
        if chosen is None or chosen.name != workload.name:
            return LAYOUTS[:1]
        call = bench.make_call(workload, self.side.name)
        if call.structure or call.updates:
            text = f"{', '.join(LAYOUTS[1:])} inputs: tensors lie as the target's own generator makes them"
            bench.notes[text] = None
            return LAYOUTS[:1]
        transposed = bench.make_call(workload, self.side.name, layout="transposed").inputs
        broadcast = bench.make_call(workload, self.side.name, layout="broadcast").inputs
        left_out = set[Layout]()
        if all(tensor.strides("transposed") == tensor.strides("contiguous") for tensor in transposed):
            left_out.add("transposed")
        if all(tensor.constant_axis < 0 for tensor in broadcast):
            left_out.add("broadcast")
        elif not all(is_floating(output.dtype) for output in call.outputs):
            left_out.add("broadcast")
            bench.notes["broadcast inputs: equal values tie, and outputs are whole numbers"] = None
        tried = LAYOUTS if chosen.seed == workload.seed else (LAYOUTS[0], "broadcast")
        return [layout for layout in tried if layout not in left_out]

    def _blame_layout(self, workload: Workload) -> Generator[Tick, None, None]:
        """Raise WorkFailed if the values, not the broadcast layout, explain a wrong output.

        Then the values also fail in contiguous memory, or the baseline also fails.
        """
        call, note = (
            self.bench.make_call(workload, self.side.name, layout="broadcast"),
            f"{self.side.name} once more",
        )
        job = Job(self.bench.make_side(BASELINE), [workload], layouts=False, control=True)
        baseline = SideChecker(job, KeptWorker(self.bench, job.side))
        try:
            outputs = files_of(call, (yield from self.ask(workload, call, "contiguous", note)))
            finding = yield from self.bench.ask_judge(Compare(call, outputs), JUDGE_LIMIT_S, note)
            for path in outputs:
                Path(path).unlink(missing_ok=True)
            control = yield from baseline.look(workload, "broadcast")
        except (WorkerLost, Refusal):
            return
        finally:
            baseline.worker.close()
        if not control.passed:
            raise WorkFailed("equal values leave nothing but rounding, in any layout")
        if _is_wrong(finding):
            raise WorkFailed("the same values are as wrong in contiguous memory")

    def _add(self, check: Check) -> None:
        self.found.append(check.model_copy(update={"threads": self.worker.side.threads}))

    def _check_again(self, workload: Workload) -> Generator[Tick, None, None]:
        """Check a workload again as the first call of a fresh process; the process stays in use.

        A workload that failed already is skipped. After a slow first call no further ones follow.
        """
        key = values_key(workload)
        self.again = set() if self.first_call_s > SLOW_S else self.again - {key}
        same = [check for check in self.found if (values_key(check.workload), check.inputs) == (key, LAYOUTS[0])]
        if not all(check.passed for check in same):
            return
        self.worker.close()
        check = yield from self._check(workload, LAYOUTS[0], once=True)
        if not check.passed:
            self._add(check)
        if (key, LAYOUTS[0]) in self._turns:
            self._turns[key, LAYOUTS[0]] = dataclasses.replace(self._turns[key, LAYOUTS[0]], which="first")

    def look(self, workload: Workload, layout: Layout) -> Generator[Tick, None, Check]:
        """Check one workload in one layout, even if the job does not list it."""
        yield from self.bench.prepare_answer(workload)
        return (yield from self._check(workload, layout))

    def _check(self, workload: Workload, layout: Layout, *, once: bool = False) -> Generator[Tick, None, Check]:
        """Make one check. A crash, a hang or a refused call becomes the check's status."""
        place = _place(workload, layout)
        if beyond := reason_unsupported(self.side, workload, layout):
            words = f"not made: `takes` of {self.side.name} leaves out {beyond}, on {place}"
            return Check(workload=workload, inputs=layout, status="unsupported", message=words, beyond=beyond)
        try:
            try:
                return (yield from self._compute(workload, layout, once=once))
            except Refusal as refusal:
                if refusal.cause != "left work":
                    raise
            self.worker.close()  # Only a clock showed it; a delay of the machine rarely comes twice.
            return (yield from self._compute(workload, layout, once=once))
        except WorkerLost as lost:
            status, cause, fault = lost.kind, lost.cause, Fault(text=lost.reason)
        except Refusal as refusal:
            cause = refusal.cause
            fault = Fault(text=refusal.reply.message, code=refusal.reply.code, seed=refusal.reply.seed)
            status = "refused"  # A variant may decline only other layouts, by the code for that.
            if cause == "raised":  # PyTorch raises where a kernel would write to overlapping elements.
                status = "unsupported" if layout == "broadcast" else "crashed"
            elif cause == "declined" and layout != "contiguous":
                status = "unsupported"
        fields = {"status": status, "message": f"{fault.text} on {place}", "cause": cause, "fault": fault}
        return Check.model_validate({"workload": workload, "inputs": layout, **fields})

    def _compute(self, workload: Workload, layout: Layout, *, once: bool = False) -> Generator[Tick, None, Check]:
        """Make the call in the worker and have the judge compare its outputs with the reference."""
        yield from self.bench.prepare_answer(workload, layout=layout)
        call = self.bench.make_call(workload, self.side.name, layout=layout)
        note = f"{self.side.name} on {_place(workload, layout)}"
        yield from self.worker.load()
        fresh = self.worker.is_new_process
        reply = yield from self.ask(workload, call, layout, note, once=once)
        outputs = files_of(call, reply)
        request = Compare(call, outputs, self.job.suspected, self.before(workload, layout, call, reply))
        finding = yield from self.bench.ask_judge(request, JUDGE_LIMIT_S, note)
        check = check_of(self.side, workload, layout, reply, finding)
        if self.job.layouts and check.cause in VALUE_CAUSES:
            which = yield from self._wrong_turns(request, reply)
            _, message = complaint_about(self.side, reply.replace(digests=()), finding, _place(workload, layout))
            turns = WrongCalls(which, fresh, message or check.message)
            self._turns[values_key(workload), layout] = turns
        for path in outputs:  # Else a later variant could copy a right output from there.
            Path(path).unlink(missing_ok=True)
        expected = finding.worst.expected if finding.worst else 0.0
        if layout == "broadcast" and (expected is None or not abs(expected) < 1e300):
            raise WorkFailed("the reference gives no number there")
        return check

    def _wrong_turns(self, request: Compare, reply: Computed) -> Generator[Tick, None, Which]:
        """Compare each output of a check with the reference; which calls gave wrong outputs."""
        wrong, right = list[CallRange](), list[CallRange]()
        for path, turn in zip(request.output_files, reply.call_ranges, strict=False):
            alone = Compare(request.call, (path,), earlier_key=request.earlier_key)
            note = f"outputs of {request.call.key}, one by one"
            finding = yield from self.bench.ask_judge(alone, JUDGE_LIMIT_S, note)
            (wrong if _is_wrong(finding) else right).append(turn)
        if not wrong or not right:
            return "all" if wrong else "none"
        if max(turn.last_call for turn in wrong) < min(turn.first_call for turn in right):
            return "first"
        return (
            "later" if max(turn.last_call for turn in right) < min(turn.first_call for turn in wrong) else "mixed"
        )

    def blame_earlier_calls(self) -> Generator[Tick, None, None]:
        """Repeat the first failure in a fresh process, to see if it depends on earlier calls."""
        check = self.checks.first_failure
        before = self._turns.get((values_key(check.workload), check.inputs)) if check else None
        if check is None or before is None or (before.fresh and before.which == "all"):
            return
        self._turns.clear()
        self.worker.close()
        again = yield from self._check(check.workload, check.inputs)
        turns = self._turns.get((values_key(check.workload), check.inputs), WrongCalls("none", fresh=True))
        cause = cause_of(before, turns) if again.passed or again.cause in VALUE_CAUSES else ""
        if cause:
            when = "wrong in the first call of its process, right afterwards"
            if cause == "later calls":
                when = "right in the first call of its process, wrong in later ones: it keeps values between calls"
            update = {"cause": cause, "message": f"{when}: {before.message}"}
            self.found = [each.model_copy(update=update) if each is check else each for each in self.found]

    def before(self, workload: Workload, layout: Layout, call: Call, reply: Computed) -> str:
        """Key of an earlier call that gave the same output for other values; empty without one."""
        if not reply.digests:
            return ""
        before = self._given.setdefault((workload.name, layout, reply.digests[0]), call.key)
        return "" if before == call.key else before

    def ask(
        self, workload: Workload, call: Call, layout: Layout, note: str, *, once: bool = False
    ) -> Generator[Tick, None, Computed]:
        """Have the worker make a call. The time limit grows with the reference's time."""
        yield from self.worker.load()
        fresh, first_call_s = self.worker.is_new_process, 0.0
        if (limit_s := self.job.call_limit_s or 0.0) == 0.0:
            limit_s = call_limit_s(self.bench, workload, emulated=self.side.emulated)
            first_call_s = CALL_LIMIT_S if self._hung else self.bench.first_call_s
        begun = time.monotonic()
        request = Compute(call, layout, is_hurried=self.side.emulated, may_run_once=once or self.job.control)
        reply = yield from self.worker.ask(request, limit_s=limit_s, note=note, first_call_s=first_call_s)
        if fresh:
            self.first_call_s = time.monotonic() - begun
        return reply


def call_limit_s(bench: Bench, workload: Workload, *, emulated: bool = False) -> float:
    """Seconds after which a call counts as hung; grows with the time of inputs and reference."""
    least_s = CALL_LIMIT_S * (EMULATED if emulated else 1.0)
    return max(least_s, min(PATIENCE * bench.reference_s.get(workload.name, 0.0), LONGEST_S))


def files_of(call: Call, reply: Computed) -> tuple[str, ...]:
    """The files of a call's outputs. Raises WorkerLost for other or incomplete files in a reply."""
    own = tuple(f"{call.output.path}.{number}" for number in range(len(reply.output_files)))
    whole = all(os.path.isfile(path) and os.path.getsize(path) == call.output.nbytes for path in own)
    if not own or reply.output_files != own or not whole:
        raise WorkerLost("tampered", FORGED, "")
    return own


def _place(workload: Workload, layout: Layout) -> str:
    return workload.name if layout == "contiguous" else f"{workload.name} with {layout} inputs"


def _is_wrong(finding: Finding) -> bool:
    """Whether an output is outside the tolerance."""
    return finding.worst is not None or bool(finding.checker or finding.plain_excess)


def check_of(side: Side, workload: Workload, layout: Layout, reply: Computed, finding: Finding) -> Check:
    """Combine the worker's reply and the judge's finding into one check."""
    place = _place(workload, layout)
    cause, message = complaint_about(side, reply, finding, place)
    if finding.unjudged_reason and cause in OF_ELEMENTS:
        message = f"{finding.unjudged_reason} on {place}"
        return Check(workload=workload, inputs=layout, status="not judged", message=message)
    in_cause = ("plain_excess", "passes_only_as_stated", "answer_distance", "unjudged_reason", "has_only_ties")
    fields = {
        "workload": workload,
        "inputs": layout,
        "status": "tampered" if cause == "replaced" else "wrong" if cause else "right",
        **{name: value for name, value in vars(finding).items() if name not in in_cause},
        "cause": cause,
        "message": message or f"largest error {finding.max_error:.1e}",
    }
    return Check.model_validate(fields, from_attributes=True)


def complaint_about(side: Side, reply: Computed, finding: Finding, place: str) -> tuple[Cause, str]:
    """The most telling fault of an output, as a cause and a sentence; empty when it is right."""
    wrong = f"{finding.wrong:,} of {finding.total:,} elements wrong"
    wrong += f" in {finding.output}" if finding.output else ""
    if reply.replaced_functions:
        return (
            "replaced",
            f"replaced {', '.join(reply.replaced_functions[:3])}, which it is judged with, on {place}",
        )
    if reply.changed_inputs:
        return "changed input", f"changed its input {', '.join(reply.changed_inputs)} on {place}"
    if reply.stray_writes:
        return "outside", f"{'; '.join(reply.stray_writes)} on {place}"
    if reply.stray_reads:
        outputs = f"; {wrong}" if finding.wrong else ""
        return (
            "outside",
            f"reads outside {reply.stray_reads}: other bytes there change the output on {place}{outputs}",
        )
    if finding.worst is not None:
        worst, is_nan = finding.worst.text, finding.worst.got is None
        worst += "; by the stated tolerance zeros would be right" if finding.passes_only_as_stated else ""
        if finding.has_only_ties:
            worst += "; wrong indices lead to equal values (ties): a `checker` in target.yaml can accept either"
        # All NaN but the reference is finite: `loop` overwrites earlier results by NaN once read.
        stale = is_nan and finding.worst.expected is not None and finding.wrong == finding.total
        if side.kind == "python" and stale:
            worst += "; results of earlier calls are NaN by now: is it one of those?"
        elif reply.is_nondeterministic:
            worst += "; a second run gave another output: flaky"
        cause: Cause = "NaN" if is_nan else "loose tolerance" if finding.passes_only_as_stated else "elements"
        return cause, f"{wrong} on {place}; worst {worst}"
    if finding.checker:
        return "checker", f"the task's checker: {finding.checker} on {place}"
    if finding.answer_distance > UNMOVED:
        apart = f"the right ones are {finding.answer_distance:,.0f} times what rounding loses apart"
        return "one output", f"gave for other values the very output that it gave on {place}; {apart}"
    if finding.plain_excess:
        return "plain error", f"{finding.plain_excess} on {place}"
    if reply.depends_on_prefill:
        return "not written", f"what stood in its output before a call shows in the output on {place}"
    if side.deterministic and reply.is_nondeterministic:
        return "two outputs", f"the same inputs gave two different outputs on {place}"
    return "", ""

"""Is it right? A variant computes in its own process, the judge compares in another."""

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
from loop.model.workloads import accepts, operations, unsupported
from loop.workers.bench import JUDGE_LIMIT_S, Bench, KeptWorker, Side
from loop.workers.judge_messages import Compare, Finding
from loop.workers.judge_process import Unjudged
from loop.workers.messages import Compute, Computed, Turn
from loop.workers.program import FORGED, Refusal, WorkerLost

LAYOUTS: tuple[Layout, ...] = ("contiguous", "strided", "misaligned", "transposed", "broadcast")
FIRST_CALLS = 2
"""Workloads that are checked once more as the first call of a fresh process. On a GPU one: CUDA starts slowly."""
CALL_LIMIT_S = 20.0
"""A call that has not come back by then hangs, unless the reference took so long that it may need longer."""
LONGEST_S = 900.0
"""No call is waited for longer."""
PATIENCE = 100.0
"""A call may take so many times what inputs and reference took: a naive kernel is far slower than a library."""
EMULATED = 5.0
"""Under the emulator a small call may take so many times as long."""
SLOW_S = 5.0
"""A first call that takes longer has made something ready, and says nothing of those that follow."""
LARGE_WORK = 1e6
"""Operations from which the time of a workload says something of its work."""
MOST_HUNG = 2
"""Checks of one side that may hang; the rest is not tried then, each would take as long."""
SIDE_BY_SIDE = 12
"""Workers that start at a time, before they are asked: their imports go on meanwhile."""
LARGE = 64 << 20
"""Bytes of inputs and outputs of a call whose files and answer are not kept."""
COPIES, ROOM = 4, 0.25
"""So many times a process may hold inputs and outputs; the share of free memory that those of all sides may take.
Where they would take more, no process is kept: to start one again costs a third of a second on a GPU."""
UNMOVED = 32.0
"""If two right outputs differ by more than this many rounding errors, one output cannot be right for both seeds: a
right kernel may be 16 of them off on either side."""
OF_ELEMENTS = ("elements", "loose tolerance", "NaN")
"""Causes that say that elements are wrong, and nothing else."""
OF_VALUES = (*OF_ELEMENTS, "checker", "plain error", "two outputs", "one output")
"""Causes behind which a kernel may stand that depends on the calls before."""
Which = Literal["none", "first", "later", "all", "mixed"]


@dataclass(frozen=True)
class Job:
    """What one side is checked on."""

    side: Side
    workloads: Sequence[Workload]
    layouts: bool = True
    """Whether inputs of other layouts are tried too, on one workload of each type, and first calls of further
    processes."""
    enough: bool = False
    """Whether the first failure ends it."""
    call_limit_s: float | None = None
    """Seconds after which a call hangs; None: a limit that grows with what the reference takes."""
    control: bool = False
    """True for the control run. Slow control calls run once, because their timing is not used."""
    suspected: bool = False
    """Whether wrong outputs are compared with those of known faults."""
    only: frozenset[str] | None = None
    """Names of the workloads that are checked here; the others are checked elsewhere. None: all."""

    @property
    def own(self) -> list[Workload]:
        """The workloads that are checked here."""
        return [workload for workload in self.workloads if self.only is None or workload.name in self.only]

    @property
    def laid_out(self) -> dict[str, Workload]:
        """Of each type the workload on which other layouts are tried: no size is 0, and none 1 if possible."""
        if self.side.kind == "command" or not self.layouts:  # A program reads files.
            return {}
        chosen: dict[str, Workload] = {}
        whole = [w for w in self.workloads if accepts(self.side, w) and 0 not in w.sizes.values()]
        for workload in sorted(whole, key=lambda workload: 1 in workload.sizes.values()):
            chosen.setdefault(workload.dtype, workload)
        return chosen


@dataclass
class TimeAllowance:
    """Seconds for optional workloads, the small ones first."""

    seconds: float
    workloads: Sequence[Workload]
    left_out: list[Workload] = dataclasses.field(default_factory=list)
    """Those for which no time was left."""
    begun: float | None = None
    seconds_of_work: float = 0.0
    """Seconds that one operation took, by the slowest of the workloads so far."""

    def fits(self, target: Target, workload: Workload) -> bool:
        """Whether there is time for a workload, by what those before took. The first call starts the clock."""
        self.begun = self.begun or time.monotonic()
        expected_s = self.seconds_of_work * operations(target, workload)
        return time.monotonic() - self.begun + expected_s < self.seconds

    def learn(self, target: Target, workload: Workload, seconds: float) -> None:
        """Learn how long a workload took. Small workloads are left out, because process start dominates them."""
        if operations(target, workload) >= LARGE_WORK:
            self.seconds_of_work = max(self.seconds_of_work, seconds / operations(target, workload))


def verify(
    bench: Bench, jobs: Sequence[Job], allowance: TimeAllowance | None = None
) -> Generator[Tick, None, tuple[VariantChecks, ...]]:
    """Check each side on its workloads; what it does not take is counted. Raises LoopError when the judge is lost.

    Sizes and values come in an order that follows from their seeds; workloads of the `allowance` come last. The
    reference is worked out twice on the first workload of the lists: if it does not repeat itself, it judges
    nothing. A workload that cannot be judged is left; raises Unjudged where none can be, unless others are judged
    elsewhere.
    """
    checkers = [SideChecker(job, KeptWorker(bench, job.side)) for job in jobs]
    optional = {values_key(workload) for workload in allowance.workloads} if allowance else set()
    every = of_one_shape(workload for job in jobs for workload in job.own)
    groups = [same for same in every if values_key(same[0]) not in optional]
    others = [same for same in every if values_key(same[0]) in optional]

    def concerned(workload: Workload) -> bool:
        return any(checker.concerns(workload) and accepts(checker.side, workload) for checker in checkers)

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
                    yield from bench.expect(workload, twice=workload is first)
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
            yield from checker.name_cause()
    finally:
        for checker in checkers:  # All at once: a driver needs a tenth of a second for the end of each.
            checker.worker.kill()
        for checker in checkers:
            checker.worker.close()
    return tuple(checker.checks for checker in checkers)


def _check_all(
    bench: Bench, checkers: Sequence["SideChecker"], same: Sequence[Workload], later: Sequence[Workload]
) -> Generator[Tick, None, None]:
    """Every side on the same sizes with each set of values, in one process.

    The process is not kept after that where it is large, or where its side has nothing left of what comes `later`.
    """
    call = bench.call(same[0], "judge")
    size = call.output.size + sum(tensor.pool_size for tensor in call.inputs)
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
            yield from bench.discard(workload)


def values_key(workload: Workload) -> tuple[str, int]:
    """The identity of a workload: its name and the seed of its values."""
    return workload.name, workload.seed


def of_one_shape(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Every workload once; those of one name, which differ in their values, together."""
    wanted: dict[str, dict[int, Workload]] = {}
    for workload in workloads:
        wanted.setdefault(workload.name, {})[workload.seed] = workload
    return [list(seeds.values()) for seeds in wanted.values()]


def _draw(workloads: Iterable[Workload]) -> random.Random:
    """Random numbers that follow from the seeds of workloads."""
    return random.Random(repr([values_key(workload) for workload in workloads]))


def in_order(parts: Sequence[VariantChecks], workloads: Sequence[Workload]) -> VariantChecks:
    """The checks of one side that were made in several places, in the order of the workloads."""
    places = {values_key(workload): place for place, workload in enumerate(workloads)}

    def place(check: Check) -> tuple[int, int]:
        return places.get(values_key(check.workload), len(places)), LAYOUTS.index(check.inputs)

    checks = (check for part in parts for check in part.checks)
    return parts[0].model_copy(update={"checks": tuple(sorted(checks, key=place))})


@dataclass(frozen=True)
class WrongTurns:
    """Which calls of a check gave wrong outputs."""

    which: Which
    """`first`: only the first ones; `later`: only the last ones."""
    fresh: bool
    """Whether no call of the process came before."""
    message: str = ""
    """What is wrong then."""


def cause_of(first: WrongTurns, again: WrongTurns) -> Cause:
    """What two checks of one call say, the second in a fresh process; empty where its place says nothing.

    Both have to agree: what differs by chance, as in a race, differs from process to process.
    """
    if again.which == "first" and (first.which == "first" or (first.which == "all" and not first.fresh)):
        return "first call"
    kept = first.which == "all" and not first.fresh and again.which in ("none", "later")
    return "later calls" if kept or (first.which == again.which == "later") else ""


class SideChecker:
    """One side with its worker, and what was found of it so far."""

    def __init__(self, job: Job, worker: KeptWorker) -> None:
        self.bench, self.job, self.side, self.worker = worker.bench, job, job.side, worker
        self.keys = {values_key(workload) for workload in job.own}
        """Workloads that are checked here, once each."""
        self.laid_out = job.laid_out
        self.found: list[Check] = []
        self.again = set[tuple[str, int]]()
        """Workloads that are checked once more as the first call of a fresh process."""
        if job.layouts and not job.control and not (self.side.kind == "command" or self.side.emulated):
            keys = [values_key(workload) for workload in job.workloads if accepts(self.side, workload)]
            most = 1 if self.bench.device == "cuda" else FIRST_CALLS
            self.again = set(_draw(job.workloads).sample(keys, min(most, len(keys))))
        self.first_call_s = 0.0
        """Seconds that the last first call of a process took."""
        self._turns: dict[tuple[tuple[str, int], Layout], WrongTurns] = {}
        """Which calls of the checks that failed were wrong."""
        self._given: dict[tuple[str, Layout, str], str] = {}
        """Sizes, layout and digest of an output to the call that it was first given to."""

    @property
    def checks(self) -> VariantChecks:
        """What was found so far, in the order of the job."""
        checks = VariantChecks(variant=self.side.name, build_id=self.side.build_id, checks=tuple(self.found))
        return in_order([checks], self.job.workloads)

    def concerns(self, workload: Workload) -> bool:
        """Whether this side is still to be checked on a workload."""
        if values_key(workload) not in self.keys or workload.dtype not in self.side.dtypes:
            return False
        failed = [check for check in self.found if not check.passed]
        return self._hung < MOST_HUNG and not (self.job.enough and failed)

    @property
    def _hung(self) -> int:
        return sum(check.status == "hung" for check in self.found)

    def leave(self, workload: Workload, why: Unjudged) -> None:
        """Note that a workload cannot be judged, if this side was to be checked on it."""
        if self.concerns(workload) and accepts(self.side, workload):
            self.found.append(Check(workload=workload, status="not judged", message=why.message))
            self.keys.discard(values_key(workload))

    def check(self, workload: Workload) -> Generator[Tick, None, None]:
        """Add the checks of one workload in each of its layouts, if it concerns this side.

        Broadcast inputs that cannot be judged become a note, not a finding.
        """
        layouts = self._layouts(workload)
        if workload.name not in {check.workload.name for check in self.found}:
            # The first values of these sizes: contiguous comes last here, and first with the next values. So both
            # lie at the same addresses, one after the other, and who remembers by address is found.
            layouts = layouts[::-1]
        for layout in layouts:
            if not self.concerns(workload):
                return
            try:
                check = yield from self._check(workload, layout)
                if layout == "broadcast" and check.cause in OF_VALUES:
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
        """How the inputs of a workload are laid out; what cannot show a mistake is left out.

        Broadcast ones come with each set of values: each is broadcast along another axis.
        """
        chosen, bench = self.laid_out.get(workload.dtype), self.bench
        if chosen is None or chosen.name != workload.name:
            return LAYOUTS[:1]
        call = bench.call(workload, self.side.name)
        if call.structure or call.updates:
            text = f"{', '.join(LAYOUTS[1:])} inputs: tensors lie as the target's own generator makes them"
            bench.notes[text] = None
            return LAYOUTS[:1]
        transposed = bench.call(workload, self.side.name, layout="transposed").inputs
        broadcast = bench.call(workload, self.side.name, layout="broadcast").inputs
        left_out = set[Layout]()
        if all(tensor.strides("transposed") == tensor.strides("contiguous") for tensor in transposed):
            left_out.add("transposed")
        if all(tensor.same < 0 for tensor in broadcast):
            left_out.add("broadcast")
        elif not all(is_floating(output.dtype) for output in call.outputs):
            left_out.add("broadcast")
            bench.notes["broadcast inputs: equal values tie, and outputs are whole numbers"] = None
        tried = LAYOUTS if chosen.seed == workload.seed else (LAYOUTS[0], "broadcast")
        return [layout for layout in tried if layout not in left_out]

    def _blame_layout(self, workload: Workload) -> Generator[Tick, None, None]:
        """Raise WorkFailed where a broadcast layout is not to blame: equal values may leave nothing but rounding.

        The same values are as wrong in contiguous memory then, or the baseline is as wrong on them.
        """
        call, note = self.bench.call(workload, self.side.name, layout="broadcast"), f"{self.side.name} once more"
        job = Job(self.bench.side(BASELINE), [workload], layouts=False, control=True)
        baseline = SideChecker(job, KeptWorker(self.bench, job.side))
        try:
            outputs = files_of(call, (yield from self.ask(workload, call, "contiguous", note)))
            finding = yield from self.bench.judge(Compare(call, outputs), JUDGE_LIMIT_S, note)
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
        """Check the first call of a fresh process, which goes on; of slow first calls, only one more.

        What is wrong on the workload already is left.
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
        """What one workload comes to in one layout, whether or not it is among the job's."""
        yield from self.bench.expect(workload)
        return (yield from self._check(workload, layout))

    def _check(self, workload: Workload, layout: Layout, *, once: bool = False) -> Generator[Tick, None, Check]:
        """One check; a call that gives no output is a check, too."""
        place = _place(workload, layout)
        if beyond := unsupported(self.side, workload, layout):
            words = f"not made: `takes` of {self.side.name} leaves out {beyond}, on {place}"
            return Check(workload=workload, inputs=layout, status="unsupported", message=words, beyond=beyond)
        try:
            try:
                return (yield from self._compute(workload, layout, once=once))
            except Refusal as refusal:
                if refusal.cause != "left work":
                    raise
            self.worker.close()  # A clock told that. It is a first call again: what held the machine up came once.
            return (yield from self._compute(workload, layout, once=once))
        except WorkerLost as lost:
            status, cause, fault = lost.kind, lost.cause, Fault(text=lost.how)
        except Refusal as refusal:
            cause = refusal.cause
            fault = Fault(text=refusal.no.message, code=refusal.no.code, seed=refusal.no.seed)
            status = "refused"  # Only inputs of another layout may be declined, and only in so many words.
            if cause == "raised":  # PyTorch raises where a kernel would write to overlapping elements.
                status = "unsupported" if layout == "broadcast" else "crashed"
            elif cause == "declined" and layout != "contiguous":
                status = "unsupported"
        fields = {"status": status, "message": f"{fault.text} on {place}", "cause": cause, "fault": fault}
        return Check.model_validate({"workload": workload, "inputs": layout, **fields})

    def _compute(self, workload: Workload, layout: Layout, *, once: bool = False) -> Generator[Tick, None, Check]:
        """Make the call and have the judge compare its outputs."""
        yield from self.bench.expect(workload, layout=layout)
        call = self.bench.call(workload, self.side.name, layout=layout)
        note = f"{self.side.name} on {_place(workload, layout)}"
        yield from self.worker.load()
        fresh = self.worker.fresh
        reply = yield from self.ask(workload, call, layout, note, once=once)
        outputs = files_of(call, reply)
        request = Compare(call, outputs, self.job.suspected, self.before(workload, layout, call, reply))
        finding = yield from self.bench.judge(request, JUDGE_LIMIT_S, note)
        check = check_of(self.side, workload, layout, reply, finding)
        if self.job.layouts and check.cause in OF_VALUES:
            which = yield from self._wrong_turns(request, reply)
            _, message = complaint_about(self.side, reply.but(digests=()), finding, _place(workload, layout))
            turns = WrongTurns(which, fresh, message or check.message)
            self._turns[values_key(workload), layout] = turns
        for path in outputs:  # Nobody who is checked later finds a right answer there.
            Path(path).unlink(missing_ok=True)
        expected = finding.worst.expected if finding.worst else 0.0
        if layout == "broadcast" and (expected is None or not abs(expected) < 1e300):
            raise WorkFailed("the reference gives no number there")
        return check

    def _wrong_turns(self, request: Compare, reply: Computed) -> Generator[Tick, None, Which]:
        """Compare each output of a check with the reference, and see which calls gave the wrong ones."""
        wrong, right = list[Turn](), list[Turn]()
        for path, turn in zip(request.outputs, reply.turns, strict=False):
            alone = Compare(request.call, (path,), before=request.before)
            note = f"outputs of {request.call.key}, one by one"
            finding = yield from self.bench.judge(alone, JUDGE_LIMIT_S, note)
            (wrong if _is_wrong(finding) else right).append(turn)
        if not wrong or not right:
            return "all" if wrong else "none"
        if max(turn.last for turn in wrong) < min(turn.first for turn in right):
            return "first"
        return "later" if max(turn.last for turn in right) < min(turn.first for turn in wrong) else "mixed"

    def name_cause(self) -> Generator[Tick, None, None]:
        """Find out whether the first failure depends on earlier calls: repeat it in a fresh process."""
        check = self.checks.first_failure
        before = self._turns.get((values_key(check.workload), check.inputs)) if check else None
        if check is None or before is None or (before.fresh and before.which == "all"):
            return
        self._turns.clear()
        self.worker.close()
        again = yield from self._check(check.workload, check.inputs)
        turns = self._turns.get((values_key(check.workload), check.inputs), WrongTurns("none", fresh=True))
        cause = cause_of(before, turns) if again.passed or again.cause in OF_VALUES else ""
        if cause:
            when = "wrong in the first call of its process, right afterwards"
            if cause == "later calls":
                when = "right in the first call of its process, wrong in later ones: it keeps values between calls"
            update = {"cause": cause, "message": f"{when}: {before.message}"}
            self.found = [each.model_copy(update=update) if each is check else each for each in self.found]

    def before(self, workload: Workload, layout: Layout, call: Call, reply: Computed) -> str:
        """Key of an earlier call with other values and the same output; empty where there is none."""
        if not reply.digests:
            return ""
        before = self._given.setdefault((workload.name, layout, reply.digests[0]), call.key)
        return "" if before == call.key else before

    def ask(
        self, workload: Workload, call: Call, layout: Layout, note: str, *, once: bool = False
    ) -> Generator[Tick, None, Computed]:
        """Have the worker make a call. Its limit grows with what the reference took on the same workload."""
        yield from self.worker.load()
        fresh, first_call_s = self.worker.fresh, 0.0
        if (limit_s := self.job.call_limit_s or 0.0) == 0.0:
            limit_s = call_limit_s(self.bench, workload, emulated=self.side.emulated)
            first_call_s = CALL_LIMIT_S if self._hung else self.bench.first_call_s
        begun = time.monotonic()
        request = Compute(call, layout, hurried=self.side.emulated, once=once or self.job.control)
        reply = yield from self.worker.ask(request, limit_s=limit_s, note=note, first_call_s=first_call_s)
        if fresh:
            self.first_call_s = time.monotonic() - begun
        return reply


def call_limit_s(bench: Bench, workload: Workload, *, emulated: bool = False) -> float:
    """Seconds after which a call hangs: they grow with what inputs and reference of the workload took."""
    least_s = CALL_LIMIT_S * (EMULATED if emulated else 1.0)
    return max(least_s, min(PATIENCE * bench.took.get(workload.name, 0.0), LONGEST_S))


def files_of(call: Call, reply: Computed) -> tuple[str, ...]:
    """The files of a call's outputs. Raises WorkerLost if a reply names others, or a file is incomplete."""
    own = tuple(f"{call.output.path}.{number}" for number in range(len(reply.outputs)))
    whole = all(os.path.isfile(path) and os.path.getsize(path) == call.output.size for path in own)
    if not own or reply.outputs != own or not whole:
        raise WorkerLost("tampered", FORGED, "")
    return own


def _place(workload: Workload, layout: Layout) -> str:
    return workload.name if layout == "contiguous" else f"{workload.name} with {layout} inputs"


def _is_wrong(finding: Finding) -> bool:
    """Whether an output is outside the tolerance."""
    return finding.worst is not None or bool(finding.checker or finding.message)


def check_of(side: Side, workload: Workload, layout: Layout, reply: Computed, finding: Finding) -> Check:
    """What the worker noticed and the judge found, as one check."""
    place = _place(workload, layout)
    cause, message = complaint_about(side, reply, finding, place)
    if finding.unjudged and cause in OF_ELEMENTS:
        message = f"{finding.unjudged} on {place}"
        return Check(workload=workload, inputs=layout, status="not judged", message=message)
    in_cause = ("loose", "unmoved", "unjudged", "tied")
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
    """What is wrong with an output, as a code and in words, the most telling first; empty when nothing is."""
    wrong = f"{finding.wrong:,} of {finding.total:,} elements wrong"
    wrong += f" in {finding.output}" if finding.output else ""
    if reply.broken:
        return "replaced", f"replaced {', '.join(reply.broken[:3])}, which it is judged with, on {place}"
    if reply.changed:
        return "changed input", f"changed its input {', '.join(reply.changed)} on {place}"
    if reply.writes:
        return "outside", f"{'; '.join(reply.writes)} on {place}"
    if reply.reads:
        outputs = f"; {wrong}" if finding.wrong else ""
        return "outside", f"reads outside {reply.reads}: other bytes there change the output on {place}{outputs}"
    if finding.worst is not None:
        worst, is_nan = finding.worst.text, finding.worst.got is None
        worst += "; by the stated tolerance zeros would be right" if finding.loose else ""
        if finding.tied:
            worst += "; wrong indices lead to equal values (ties): a `checker` in target.yaml can accept either"
        # All of it is NaN that should be none, as results of earlier calls are once they are read.
        stale = is_nan and finding.worst.expected is not None and finding.wrong == finding.total
        if side.kind == "python" and stale:
            worst += "; results of earlier calls are NaN by now: is it one of those?"
        elif reply.flaky:
            worst += "; a second run gave another output: flaky"
        cause: Cause = "NaN" if is_nan else "loose tolerance" if finding.loose else "elements"
        return cause, f"{wrong} on {place}; worst {worst}"
    if finding.checker:
        return "checker", f"the task's checker: {finding.checker} on {place}"
    if finding.unmoved > UNMOVED:
        apart = f"the right ones are {finding.unmoved:,.0f} times what rounding loses apart"
        return "one output", f"gave for other values the very output that it gave on {place}; {apart}"
    if finding.message:
        return "plain error", f"{finding.message} on {place}"
    if reply.unwritten:
        return "not written", f"what stood in its output before a call shows in the output on {place}"
    if side.deterministic and reply.flaky:
        return "two outputs", f"the same inputs gave two different outputs on {place}"
    return "", ""

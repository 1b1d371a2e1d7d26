"""Verify variants: each computes in a worker process; the judge process compares outputs."""

import dataclasses
import os
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from loop.base.errors import WorkFailed
from loop.base.processes import Waiting
from loop.calls.call import Call, Refused
from loop.model.causes import Cause
from loop.model.dtypes import Layout, is_floating
from loop.model.measurement import BASELINE, Check, Comparison, Fault, VariantChecks
from loop.model.target import Workload
from loop.model.workloads import count_operations, explain_unsupported, is_supported
from loop.workers.bench import JUDGE_LIMIT_S, Bench, KeptWorker, Side
from loop.workers.judge_messages import Compare, Finding
from loop.workers.messages import CallRange, Compute, Computed
from loop.workers.program import FORGED, Unjudged, WorkerLost

LAYOUTS: tuple[Layout, ...] = ("contiguous", "strided", "misaligned", "transposed", "broadcast")
FIRST_CALLS = 2  # Checked again as first calls of fresh processes; on a GPU, slow to start, 1.
CALL_LIMIT_S = 20.0
"""Smallest time limit of a call, in seconds. A slow reference raises the limit (`call_limit_s`)."""
LONGEST_S = 900.0  # Largest time limit of a call, in seconds.
PATIENCE = 100.0  # Time limit of a call / time of inputs and reference: naive kernels are slow.
EMULATED_FACTOR = 5.0  # Factor on the smallest time limit under the emulator.
SLOW_FIRST_CALL_S = 5.0  # Seconds from which a first call includes a setup that later calls lack.
LARGE_WORK = 1e6  # Operations from which a workload's time depends on its work.
MAX_HUNG = 2  # Hung checks after which a side's others are skipped: each could hang as long.
AHEAD = 2
"""Processes that start while another one calls; more would wait for the GPU's driver."""
LARGE_BYTES = 64 << 20  # Bytes of inputs and outputs above which no file or reference is kept.
COPIES_HELD, MEMORY_SHARE = 4, 0.25
"""Copies of tensors that a process may hold; share of free memory above which none is kept."""
MOST_ROUNDING_ERRORS = 32.0
"""If the references of two seeds differ by more rounding errors, one output cannot be right for
both: a right kernel may be off by 16 of them on either side."""
ELEMENT_CAUSES = ("elements", "loose tolerance", "NaN", "not written")
"""Causes that say only that elements are wrong."""
VALUE_CAUSES = (*ELEMENT_CAUSES, "checker", "plain error", "two outputs", "one output")
"""Causes that a dependence on earlier calls may explain."""
WhichCalls = Literal["none", "first", "later", "all", "mixed"]


@dataclass(frozen=True)
class Job:
    """The checks to make of one side (a variant or the baseline): workloads, layouts and limits."""

    side: Side
    workloads: Sequence[Workload]
    layouts: bool = True  # Whether to try other layouts, too, and first calls of processes.
    fail_fast: bool = False  # Whether the first failure ends the checks of this side.
    call_limit_s: float | None = None  # Seconds after which a call hangs; None: `call_limit_s`.
    control: bool = False  # The control run: slow calls run once, as their timing is not used.
    suspected: bool = False  # Whether wrong outputs are compared with the outputs of known faults.
    own_names: frozenset[str] | None = None  # Workloads that this job checks; None: all.
    mistake: dict[str, Any] | None = None  # What `loop.mistakes` makes wrong, to test the gate.
    compares_calls: bool = True  # Whether an output that a call gave for other values is doubted.

    @property
    def own_workloads(self) -> list[Workload]:
        """The workloads that this job checks."""
        return [w for w in self.workloads if self.own_names is None or w.name in self.own_names]


@dataclass
class TimeAllowance:
    """A budget of seconds for optional workloads; small ones come first."""

    seconds: float
    workloads: Sequence[Workload]
    left_out: list[Workload] = dataclasses.field(default_factory=list)  # Without time.


def verify(
    bench: Bench, jobs: Sequence[Job], allowance: TimeAllowance | None = None
) -> Waiting[tuple[VariantChecks, ...]]:
    """Check each side on its workloads; an entry for each job, in order. The order of workloads is
    random but follows from their seeds; the `allowance` comes last. On the first workload that it
    can judge, the judge computes the reference twice: both have to agree. What it cannot judge gets
    checks `not judged`. LoopError if the judge is lost; Unjudged if no job can judge anything."""
    checkers = [SideChecker(job, KeptWorker(bench, job.side)) for job in jobs]
    optional_names = {w.name for w in allowance.workloads} if allowance else set[str]()
    groups = group_by_name(workload for job in jobs for workload in job.own_workloads)
    unjudged, has_judged = list[Unjudged](), False
    optional_start: float | None = None
    seconds_per_operation = 0.0  # Of the slowest workload so far.
    try:
        for checker in checkers[: AHEAD + 1]:
            checker.worker.start()
        required = [[*group] for group in groups if group[0].name not in optional_names]
        rng = random.Random(repr([workload_key(workload) for workload in chain(*required)]))
        rng.shuffle(required)
        for group in required:
            rng.shuffle(group)
        shuffled = required + [group for group in groups if group[0].name in optional_names]
        for number, group in enumerate(shuffled):
            start_time = time.monotonic()
            work = sum(count_operations(bench.target, workload) for workload in group)
            if allowance and group[0].name in optional_names:
                optional_start = optional_start or start_time
                if start_time - optional_start + seconds_per_operation * work >= allowance.seconds:
                    allowance.left_out += group
                    continue
            for workload in group:
                waiting = [checker for checker in checkers if checker.needs_answer(workload)]
                try:
                    if waiting:
                        yield from bench.prepare_answer(workload, checks_determinism=not has_judged)
                        has_judged = True
                except Unjudged as error:
                    unjudged.append(error)
                    for checker in waiting:
                        check = Check(workload=workload, status="not judged", message=error.message)
                        checker.made_checks.append(check)
                        checker.workload_keys.discard(workload_key(workload))
            yield from _check_group(bench, checkers, group, [*chain(*shuffled[number + 1 :])])
            if work >= LARGE_WORK * len(group):
                operation_s = (time.monotonic() - start_time) / work
                seconds_per_operation = max(seconds_per_operation, operation_s)
        if unjudged and not has_judged and all(job.own_names is None for job in jobs):
            raise unjudged[0]
        for checker in checkers:
            yield from checker.blame_earlier_calls()
    finally:
        for checker in checkers:  # Kill all first: a driver takes 0.1 s to end each process.
            checker.worker.kill()
        for checker in checkers:
            checker.worker.close()
    return tuple(checker.checks for checker in checkers)


def _check_group(
    bench: Bench, checkers: Sequence["SideChecker"], group: list[Workload], later: list[Workload]
) -> Waiting[None]:
    """Check every side on workloads of one name, each in one worker process. The next ones start
    meanwhile, and the next emulated side computes. Closes workers if memory is scarce, or if no
    `later` workload is theirs. The judge forgets answers with more than `LARGE_BYTES`."""
    call = bench.make_call(group[0], "judge")
    size = call.output.nbytes + sum(tensor.pool_nbytes for tensor in call.inputs)
    is_large, held_bytes = size > LARGE_BYTES, size * COPIES_HELD * len(checkers)
    is_crowded = is_large and held_bytes > MEMORY_SHARE * bench.free_bytes
    needed = [checker for checker in checkers if any(map(checker.has_to_check, group))]
    for checker in checkers:
        if checker in needed:
            following = needed[needed.index(checker) + 1 :]
            for next_checker in following[: 1 if is_crowded else AHEAD]:
                next_checker.worker.start()
            if following and not is_crowded:
                following[0].begin_check(group)
        for workload in group:
            yield from checker.check(workload)
        if is_crowded or not any(map(checker.has_to_check, later)):
            checker.worker.close()
    if is_large:
        for workload in group:
            yield from bench.discard_answer(workload)


def workload_key(workload: Workload) -> tuple[str, int]:
    """The identity of a workload: its name and the seed of its values."""
    return workload.name, workload.seed


def group_by_name(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Group workloads by name: those of a group share their sizes and differ in the seed."""
    by_name_and_seed: dict[str, dict[int, Workload]] = {}
    for workload in workloads:
        by_name_and_seed.setdefault(workload.name, {})[workload.seed] = workload
    return [list(seeds.values()) for seeds in by_name_and_seed.values()]


def merge_checks(parts: Sequence[VariantChecks], workloads: Sequence[Workload]) -> VariantChecks:
    """Concatenate the checks that jobs made of one side, sorted by workload; unlisted ones last."""
    position_by_key = {workload_key(w): position for position, w in enumerate(workloads)}
    last = len(position_by_key)
    checks = [check for part in parts for check in part.checks]
    checks.sort(key=lambda check: LAYOUTS.index(check.inputs))  # The next sort keeps this order.
    checks.sort(key=lambda check: position_by_key.get(workload_key(check.workload), last))
    return parts[0].model_copy(update={"checks": tuple(checks)})


@dataclass(frozen=True)
class WrongCalls:
    """Which calls of a check gave wrong outputs."""

    which: WhichCalls  # `first`, `later`: only the first, or last ones; `mixed`: in other orders.
    is_fresh_process: bool  # Whether the check made the first call of its process.
    message: str = ""  # What is wrong with those outputs.


def cause_of_repeat(first: WrongCalls, repeat: WrongCalls) -> Cause:
    """Whether a failure depends on earlier calls, by a check and its repeat in a fresh process.
    `first call`: only calls right after the start are wrong. `later calls`: these are right. Empty
    unless both agree, because a race differs by chance from process to process."""
    # All wrong in a process that had made other calls: the repeat tells which calls these are.
    is_undetermined = first.which == "all" and not first.is_fresh_process
    if repeat.which == "first" and (first.which == "first" or is_undetermined):
        return "first call"
    keeps_values = is_undetermined and repeat.which in ("none", "later")
    return "later calls" if keeps_values or first.which == repeat.which == "later" else ""


class SideChecker:
    """Checks one side (a variant or the baseline) in its worker process, and keeps the checks."""

    def __init__(self, job: Job, worker: KeptWorker) -> None:
        self.bench, self.job, self.side, self.worker = worker.bench, job, job.side, worker
        self.workload_keys = {workload_key(workload) for workload in job.own_workloads}
        """Keys of the workloads that this job checks."""
        self.workload_for_layouts: dict[str, Workload] = {}
        """Element type to the workload for other layouts: no size is 0, if possible none is 1."""
        full = [w for w in job.workloads if all(w.sizes.values()) and is_supported(self.side, w)]
        if job.layouts and self.side.kind != "command":  # A program reads files.
            for workload in sorted(full, key=lambda workload: 1 in workload.sizes.values()):
                self.workload_for_layouts.setdefault(workload.dtype, workload)
        self.made_checks: list[Check] = []
        self.keys_to_repeat = set[tuple[str, int]]()  # To check again as first calls.
        is_slow_to_start = self.side.kind == "command" or self.side.emulated
        if job.layouts and not job.control and not is_slow_to_start:
            keys = [workload_key(w) for w in job.workloads if is_supported(self.side, w)]
            count = min(1 if self.bench.device == "cuda" else FIRST_CALLS, len(keys))
            rng = random.Random(repr([workload_key(workload) for workload in job.workloads]))
            self.keys_to_repeat = set(rng.sample(keys, count))
        self.first_call_s = 0.0  # Seconds of the latest call that was the first of its process.
        self.wrong_calls: dict[tuple[tuple[str, int], Layout], WrongCalls] = {}
        """For each failed check (workload key, layout): which of its calls were wrong."""
        self.digests_by_call: dict[str, tuple[str, ...]] = {}  # Call key to its outputs' digests.
        self._first_call_by_output: dict[tuple[str, Layout, str], str] = {}
        """Workload name, layout and output digest to the call that first gave this output."""

    @property
    def checks(self) -> VariantChecks:
        """All checks made so far, several of one workload too, sorted by the job's workloads."""
        name, build_id = self.side.name, self.side.build_id
        checks = VariantChecks(variant=name, build_id=build_id, checks=tuple(self.made_checks))
        return merge_checks([checks], self.job.workloads)

    def has_to_check(self, workload: Workload) -> bool:
        """Whether this side still has to be checked on a workload."""
        is_own = workload_key(workload) in self.workload_keys
        if not is_own or workload.dtype not in self.side.dtypes:
            return False
        has_failed = not all(check.passed for check in self.made_checks)
        hung_count = sum(check.status == "hung" for check in self.made_checks)
        return hung_count < MAX_HUNG and not (self.job.fail_fast and has_failed)

    def needs_answer(self, workload: Workload) -> bool:
        """Whether this side still has to be called on a workload: it needs the judge's answer."""
        return self.has_to_check(workload) and is_supported(self.side, workload)

    def check(self, workload: Workload) -> Waiting[None]:
        """Add the checks of one workload in each of its layouts, if this side has to check it.
        Broadcast inputs that cannot be judged become a note, not a finding."""
        layouts, threads = self._choose_layouts(workload), {"threads": self.worker.side.threads}
        if workload.name not in {check.workload.name for check in self.made_checks}:
            # First values of these sizes: contiguous comes last here, and first with the next
            # values. So two sets of values share addresses, and a cache keyed by address fails.
            layouts = layouts[::-1]
        for layout in layouts:
            if not self.has_to_check(workload):
                return
            try:
                check = yield from self.make_check(workload, layout)
                if layout == "broadcast" and check.cause in VALUE_CAUSES:
                    yield from self._raise_if_values_explain(workload)
                self.made_checks.append(check.model_copy(update=threads))
            except WorkFailed as error:
                if layout != "broadcast":
                    raise
                self.wrong_calls.pop((workload_key(workload), layout), None)
                place = f"{self.side.name} on {_describe_place(workload, layout)}"
                self.bench.notes[f"{place}: {error.message}"] = None
        if workload_key(workload) in self.keys_to_repeat and self.has_to_check(workload):
            # Check it again as the first call of a fresh process, unless it failed already; keep
            # that check if it fails. The process stays in use. After a slow first call none follow.
            key, layout = workload_key(workload), LAYOUTS[0]
            self.keys_to_repeat.discard(key)
            if self.first_call_s > SLOW_FIRST_CALL_S:
                self.keys_to_repeat.clear()
            failed = [check for check in self.made_checks if not check.passed]
            failed_keys = [(workload_key(check.workload), check.inputs) for check in failed]
            if (key, layout) not in failed_keys:
                self.worker.close()
                check = yield from self.make_check(workload, layout, once=True)
                if not check.passed:
                    self.made_checks.append(check.model_copy(update=threads))
                wrong_calls = self.wrong_calls.get((key, layout))
                if wrong_calls:  # The values were right in a process in use.
                    self.wrong_calls[key, layout] = dataclasses.replace(wrong_calls, which="first")

    def begin_check(self, group: Sequence[Workload]) -> None:
        """Have the worker of an emulated side, from its second request on, compute the first check
        of these workloads, unless they are tried in other layouts; `check` takes the reply."""
        workload = next(filter(self.needs_answer, group), None)
        in_layouts = {workload.name for workload in self.workload_for_layouts.values()}
        may_hurry = self.side.emulated and not self.worker.is_new_process
        if may_hurry and workload and workload.name not in in_layouts:
            call = self.bench.make_call(workload, self.side.name)
            self.worker.start().send(Compute(call, is_hurried=True, may_run_once=self.job.control))

    def _choose_layouts(self, workload: Workload) -> Sequence[Layout]:
        """The input layouts to try on a workload; most get `contiguous` only. Broadcast is tried
        with each seed: each takes another axis. Leaves out layouts that cannot show a mistake."""
        chosen, bench = self.workload_for_layouts.get(workload.dtype), self.bench
        if chosen is None or chosen.name != workload.name:
            return LAYOUTS[:1]
        call = bench.make_call(workload, self.side.name)
        if bench.target.generator or call.updated_inputs:
            reason = "the generator places its tensors"
            if call.updated_inputs:
                reason = "an input is changed in place"
            bench.notes[f"{', '.join(LAYOUTS[1:])} inputs: {reason}"] = None
            return LAYOUTS[:1]
        transposed = bench.make_call(workload, self.side.name, layout="transposed").inputs
        broadcast = bench.make_call(workload, self.side.name, layout="broadcast").inputs
        left_out = set[Layout]()
        if all(t.strides("transposed") == t.strides("contiguous") for t in transposed):
            left_out.add("transposed")
        if all(tensor.constant_axis < 0 for tensor in broadcast):  # No axis to broadcast along.
            left_out.add("broadcast")
        elif not all(is_floating(output.dtype) for output in call.outputs):
            left_out.add("broadcast")
            bench.notes["broadcast inputs: equal values tie, and outputs are whole numbers"] = None
        tried = LAYOUTS if chosen.seed == workload.seed else (LAYOUTS[0], "broadcast")
        return [layout for layout in tried if layout not in left_out]

    def _raise_if_values_explain(self, workload: Workload) -> Waiting[None]:
        """Raise WorkFailed if the values, not the broadcast layout, explain a wrong output: they
        are wrong in contiguous memory or for the baseline, too. Not if a worker is lost."""
        call = self.bench.make_call(workload, self.side.name, layout="broadcast")
        note = f"{self.side.name} once more"
        job = Job(self.bench.make_side(BASELINE), [workload], layouts=False, control=True)
        baseline = SideChecker(job, KeptWorker(self.bench, job.side))
        try:
            reply = yield from self.make_call(workload, call, "contiguous", note)
            outputs = output_files(call, reply)
            finding = yield from self.bench.ask_judge(Compare(call, outputs), JUDGE_LIMIT_S, note)
            for path in outputs:
                Path(path).unlink(missing_ok=True)
            control = yield from baseline.make_check(workload, "broadcast")
        except (WorkerLost, Refused):
            return
        finally:
            baseline.worker.close()
        if not control.passed:
            raise WorkFailed("equal values leave nothing but rounding, in any layout")
        if finding.checker or not finding.passes:
            raise WorkFailed("the same values are as wrong in contiguous memory")

    def make_check(
        self, workload: Workload, layout: Layout, *, once: bool = False
    ) -> Waiting[Check]:
        """Make one check, even if the job does not list it. A crash, a hang or a refused call
        becomes the check's status. `unsupported`: a call that `takes` leaves out, which is not
        made, or another layout that the variant declines. `once`: a slow call is made once."""
        fields: dict[str, object] = {"workload": workload, "inputs": layout}
        place = _describe_place(workload, layout)
        if beyond := explain_unsupported(self.side, workload, layout):
            message = f"not made: `takes` of {self.side.name} leaves out {beyond}, on {place}"
            fields |= {"status": "unsupported", "message": message, "beyond": beyond}
            return Check.model_validate(fields)
        try:
            try:
                return (yield from self._compute(workload, layout, once=once))
            except Refused as refusal:
                if refusal.cause != "left work":
                    raise
            self.worker.close()  # Only a clock showed it; a machine's delay rarely comes twice.
            return (yield from self._compute(workload, layout, once=once))
        except WorkerLost as lost:
            status, cause, fault = lost.kind, lost.cause, Fault(text=lost.reason)
        except Refused as refusal:
            cause = refusal.cause
            fault = Fault(text=str(refusal), code=refusal.code, seed=refusal.seed)
            status = "refused"  # A variant may decline only other layouts, by the code for that.
            if fault.seed is not None:  # The emulator met a fault: the variant declined nothing.
                status = "crashed"
            elif cause == "raised":  # PyTorch raises for writes to overlapping elements.
                status = "unsupported" if layout == "broadcast" else "crashed"
            elif cause == "declined" and layout != "contiguous":
                status = "unsupported"
        message = f"{fault.text} on {place}"
        fields |= {"status": status, "message": message, "cause": cause, "fault": fault}
        return Check.model_validate(fields)

    def _compute(self, workload: Workload, layout: Layout, *, once: bool = False) -> Waiting[Check]:
        """Make the call in the worker and have the judge compare its outputs with the reference;
        note which calls were wrong, and delete the outputs. WorkFailed for a reference of NaN."""
        yield from self.bench.prepare_answer(workload, layout=layout)
        call = self.bench.make_call(workload, self.side.name, layout=layout)
        place = _describe_place(workload, layout)
        note = f"{self.side.name} on {place}"
        yield from self.worker.load()
        is_fresh = self.worker.is_new_process
        reply = yield from self.make_call(workload, call, layout, note, once=once)
        if reply.float_unit_change:
            others = f"calculations of others after {self.worker.side.name}"
            change = f"it leaves the floating-point unit changed: {reply.float_unit_change}"
            self.bench.notes[f"{others}: {change}"] = None
        outputs, earlier = output_files(call, reply), ""
        self.digests_by_call[call.key] = reply.digests
        if reply.digests and self.job.compares_calls:
            # An earlier call that gave the same output for other values: it may be stale.
            output_key = workload.name, layout, reply.digests[0]
            first_call = self._first_call_by_output.setdefault(output_key, call.key)
            earlier = "" if first_call == call.key else first_call
        request = Compare(call, outputs, self.job.suspected, earlier)
        finding = yield from self.bench.ask_judge(request, JUDGE_LIMIT_S, note)
        check = make_check_of(self.side, workload, layout, reply, finding)
        if self.job.layouts and check.cause in VALUE_CAUSES:
            which = yield from self._find_wrong_calls(request, reply)
            # Without digests no output counts as flaky: which calls are wrong says more.
            _, message = describe_fault(self.side, reply.replace(digests=()), finding, place)
            key = (workload_key(workload), layout)
            self.wrong_calls[key] = WrongCalls(which, is_fresh, message or check.message)
        for path in outputs:  # Else a later variant could copy a right output from there.
            Path(path).unlink(missing_ok=True)
        expected = finding.worst.expected if finding.worst else 0.0
        if layout == "broadcast" and (expected is None or not abs(expected) < 1e300):
            raise WorkFailed("the reference gives no number there")
        return check

    def _find_wrong_calls(self, request: Compare, reply: Computed) -> Waiting[WhichCalls]:
        """Compare each output of a check with the reference; which calls gave wrong outputs. An
        output stands for the calls that gave it: `reply.call_ranges` holds their first and last."""
        wrong, right = list[CallRange](), list[CallRange]()
        for path, calls in zip(request.output_files, reply.call_ranges, strict=False):
            single = Compare(request.call, (path,), earlier_key=request.earlier_key)
            note = f"outputs of {request.call.key}, one by one"
            finding = yield from self.bench.ask_judge(single, JUDGE_LIMIT_S, note)
            (wrong if finding.checker or not finding.passes else right).append(calls)
        if not wrong or not right:
            return "all" if wrong else "none"
        if max(calls.last_call for calls in wrong) < min(calls.first_call for calls in right):
            return "first"
        if max(calls.last_call for calls in right) < min(calls.first_call for calls in wrong):
            return "later"
        return "mixed"

    def blame_earlier_calls(self) -> Waiting[None]:
        """Repeat the first failure in a fresh process; if it depends on earlier calls, say so."""
        check = self.checks.first_failure
        if check is None:
            return
        key = workload_key(check.workload), check.inputs
        wrong_calls = self.wrong_calls.get(key)
        if wrong_calls is None or (wrong_calls.is_fresh_process and wrong_calls.which == "all"):
            return
        self.wrong_calls.clear()
        self.worker.close()
        repeat = yield from self.make_check(check.workload, check.inputs)
        wrong_in_repeat = self.wrong_calls.get(key, WrongCalls("none", is_fresh_process=True))
        cause = cause_of_repeat(wrong_calls, wrong_in_repeat)
        if cause and (repeat.passed or repeat.cause in VALUE_CAUSES):
            when = "wrong in the first call of its process, right afterwards"
            if cause == "later calls":
                when = "right in the first call of its process, wrong in later ones"
                when += ": kept values, or a data race"
            update = {"cause": cause, "message": f"{when}: {wrong_calls.message}"}
            self.made_checks[self.made_checks.index(check)] = check.model_copy(update=update)

    def make_call(
        self, workload: Workload, call: Call, layout: Layout, note: str, *, once: bool = False
    ) -> Waiting[Computed]:
        """Have the worker make the calls of a check. The time limit grows with the reference's
        time. `note`: for the screen; `once`: one call is enough if it is slow."""
        yield from self.worker.load()
        is_fresh = self.worker.is_new_process
        limit_s, first_limit_s = self.job.call_limit_s or 0.0, 0.0
        if not limit_s:
            limit_s = call_limit_s(self.bench, workload, emulated=self.side.emulated)
            has_hung = any(check.status == "hung" for check in self.made_checks)
            first_limit_s = CALL_LIMIT_S if has_hung else self.bench.first_call_s
        start_time = time.monotonic()
        may_run_once, is_hurried = once or self.job.control, self.side.emulated
        request = Compute(call, layout, is_hurried=is_hurried, may_run_once=may_run_once)
        request = request.replace(mistake=self.job.mistake)
        asking = self.worker.ask(request, limit_s=limit_s, note=note, first_call_s=first_limit_s)
        reply = yield from asking
        if is_fresh:
            self.first_call_s = time.monotonic() - start_time
        return reply


def call_limit_s(bench: Bench, workload: Workload, *, emulated: bool = False) -> float:
    """Seconds after which a call counts as hung; grows with the time of inputs and reference."""
    least_s = CALL_LIMIT_S * (EMULATED_FACTOR if emulated else 1.0)
    return max(least_s, min(PATIENCE * bench.reference_s.get(workload.name, 0.0), LONGEST_S))


def output_files(call: Call, reply: Computed) -> tuple[str, ...]:
    """The files of a call's distinct outputs. WorkerLost for none, or another size."""
    paths = tuple(f"{call.output.path}.{number}" for number in range(len(reply.call_ranges)))
    sizes = [os.path.getsize(path) if os.path.isfile(path) else -1 for path in paths]
    if not paths or any(size != call.output.nbytes for size in sizes):
        raise WorkerLost("tampered", FORGED, "")
    return paths


def _describe_place(workload: Workload, layout: Layout) -> str:
    """Where a check was made, in words: workload, and the layout if it is not the usual one."""
    return workload.name if layout == "contiguous" else f"{workload.name} with {layout} inputs"


def make_check_of(
    side: Side, workload: Workload, layout: Layout, reply: Computed, finding: Finding
) -> Check:
    """Combine the worker's reply and the judge's finding into one check: `not judged` if the judge
    says so and only elements are wrong; `tampered` if functions of the worker were replaced."""
    place = _describe_place(workload, layout)
    cause, message = describe_fault(side, reply, finding, place)
    if finding.unjudged_reason and cause in ELEMENT_CAUSES:
        message = f"{finding.unjudged_reason} on {place}"
        return Check(workload=workload, inputs=layout, status="not judged", message=message)
    fields = {name: getattr(finding, name) for name in Comparison.model_fields}
    status = "wrong" if cause else "right"
    status = "tampered" if cause == "replaced" else status
    message = message or f"largest error {finding.max_error:.1e}"
    fields |= {"workload": workload, "inputs": layout, "status": status}
    fields |= {"cause": cause, "message": message}
    return Check.model_validate(fields, from_attributes=True)


def describe_fault(side: Side, reply: Computed, finding: Finding, place: str) -> tuple[Cause, str]:
    """The most telling fault of an output, as a cause and a sentence; both empty when it is right.
    That outputs differ from call to call is a fault of a `deterministic` side only; a Python
    variant may differ by the order of sums: libraries choose it by threads and addresses."""
    wrong_text = f"{finding.wrong:,} of {finding.total:,} elements wrong"
    output_word = "output " if finding.output[:1].isdigit() else ""  # Unnamed outputs have numbers.
    wrong_text += f" in {output_word}{finding.output}" if finding.output else ""
    gave_several_outputs = len(reply.digests) > 1  # For the same inputs.
    if reply.replaced_functions:
        names = ", ".join(reply.replaced_functions[:3])
        return "replaced", f"replaced {names}, which it is judged with, on {place}"
    if reply.changed_inputs:
        return "changed input", f"changed its input {', '.join(reply.changed_inputs)} on {place}"
    if reply.stray_writes:
        return "outside", f"{'; '.join(reply.stray_writes)} on {place}"
    if reply.stray_reads:
        outputs = f"; {wrong_text}" if finding.wrong else ""
        effect = f"other bytes there change the output on {place}{outputs}"
        return "outside", f"reads outside {reply.stray_reads}: {effect}"
    if finding.worst is not None:
        worst, is_nan = finding.worst.text, finding.worst.got is None
        value_cause: Cause = "elements"
        if finding.passes_only_as_stated:
            value_cause = "loose tolerance"
            worst += "; by the stated tolerance zeros would be right"
        is_all_nan = is_nan and finding.wrong == finding.total
        # A Python variant may return an earlier result, overwritten by NaN after reading.
        if side.kind == "python" and is_all_nan and finding.worst.expected is not None:
            worst += "; results of earlier calls are NaN by now: is it one of those?"
        elif gave_several_outputs:
            worst += "; a second run gave another output: flaky"
        elif reply.depends_on_prefill and not is_nan:
            value_cause = "not written"
            worst += "; what stood in the output before the call shows in it"
        elif finding.is_integer:
            worst += "; for indices of equal values, a `checker` in target.yaml can accept either"
        return "NaN" if is_nan else value_cause, f"{wrong_text} on {place}; worst {worst}"
    if finding.checker:
        return "checker", f"the task's checker: {finding.checker} on {place}"
    if finding.answer_distance > MOST_ROUNDING_ERRORS:
        apart = f"{finding.answer_distance:,.0f} times what rounding loses apart"
        same = f"gave for other values the very output that it gave on {place}"
        return "one output", f"{same}; the right ones are {apart}"
    if finding.plain_excess:
        return "plain error", f"{finding.plain_excess} on {place}"
    if reply.depends_on_prefill:
        return "not written", f"what stood in its output before a call shows in it on {place}"
    differs_by_sums = side.kind == "python" and finding.outputs_agree
    if side.deterministic and gave_several_outputs and not differs_by_sums:
        return "two outputs", f"the same inputs gave two different outputs on {place}"
    return "", ""

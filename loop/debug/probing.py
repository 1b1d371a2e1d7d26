"""What every step that looks for a cause shares: what fails, and a gate that answers probe after probe."""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from loop.base.errors import WorkFailed
from loop.base.processes import Tick
from loop.debug.shrinking import Failing, failing, kind_of
from loop.gate.kernel import compile_all, to_build
from loop.gate.order import values_key
from loop.gate.verify import Job, SideChecker, complaint, files_of
from loop.model.debugging import Outcome
from loop.model.dtypes import Layout
from loop.model.measurement import Check
from loop.model.output import Checked, outputs_of
from loop.model.signature import Signature
from loop.model.target import Workload
from loop.model.tuning import Scalar
from loop.model.workloads import base_seed, entry_of, single, unsupported
from loop.steps.context import Context
from loop.workers.bench import JUDGE_LIMIT_S, Side
from loop.workers.judge_messages import Compare
from loop.workers.kept import KeptWorker
from loop.workers.messages import Compute
from loop.workers.program import Refusal, WorkerLost

HANG_S = 5.0
"""A probe that has not come back by then hangs; small workloads take milliseconds."""


NOTHING_WRONG = "no variant failed a check: no cause to look for"


class SearchSpent(Exception):
    """The budget of a search is used up."""


def checked(context: Context, variant: str) -> list[Check]:
    """All checks of a variant in this session, in the order of the verifications."""
    outputs = outputs_of(context.finished, Checked)
    return [check for output in outputs for of in output.variants if of.variant == variant for check in of.checks]


def failing_variants(context: Context) -> tuple[Failing, ...]:
    """What the last checks of this session found wrong; nothing where a control failed."""
    last = {record.action: record for record in context.finished if record.output}
    outputs = outputs_of(last.values(), Checked)
    trusted = [output for output in outputs if output.control is None or not output.control.first_failure]
    signature = context.bench.target.signature
    failures = (failing(checks, signature) for output in trusted for checks in output.variants)
    return tuple(failure for failure in failures if failure is not None)


def sides(context: Context, names: Sequence[str]) -> Generator[Tick, None, dict[str, Side]]:
    """The named variants with their builds, emulated or not; those that do not compile are left out."""
    bench = context.bench
    emulated = [name for name in names if name in context.task.emulated]
    others = [name for name in names if name not in emulated]
    wanted = {**to_build(context, others), **bench.emulations(emulated)}
    built, _ = yield from compile_all(context, wanted)
    builds = {build.variant: build for build in built}
    usable = [name for name in names if name in builds or name not in wanted]
    return {name: bench.side(name, builds.get(name), emulated=name in emulated) for name in usable}


def failing_sides(
    context: Context, failures: Sequence[Failing]
) -> Generator[Tick, None, list[tuple[Failing, Side]]]:
    """Failing variants with their sides. Raises LoopError when a source was edited since it was checked."""
    by_name = yield from sides(context, [failure.variant for failure in failures])
    for failure in failures:
        side = by_name.get(failure.variant)
        if side is None or side.build_id != failure.build_id:
            what = "was edited after it was checked" if side else "no longer compiles"
            raise WorkFailed(f"{failure.variant} {what}", hint="run the session again")
    return [(failure, by_name[failure.variant]) for failure in failures]


class FailureProber:
    """Asks the gate whether one variant still fails, workload after workload; it remembers every answer."""

    def __init__(self, context: Context, failing: Failing, side: Side, most: int, limit_s: float) -> None:
        self.context, self.failing, self.side, self.most = context, failing, side, most
        self.end = time.monotonic() + limit_s
        self.start = failing.start
        self.outcomes: dict[tuple[str, int, Layout], Outcome] = {}
        """Workloads, by name, seed and layout, to what the gate said of them."""
        self.asked = 0
        """How many were asked here."""
        self.failures = [check for check in checked(context, failing.variant) if kind_of(check) == failing.kind]
        """Checks that show the failure, in the order in which they were made."""
        self._remember(self.start)
        self._checker = self._new_checker(None)

    def begin_process(self, threads: int | None = None) -> None:
        """Make calls in a new process from now on, on so many threads; None: as a verification does."""
        self.close()
        self._checker = self._new_checker(threads)

    def _new_checker(self, threads: int | None) -> SideChecker:
        side = replace(self.side, threads=threads) if threads else self.side
        worker = KeptWorker(self.context.bench, side)
        return SideChecker(Job(side, (), layouts=False, call_limit_s=HANG_S), worker)

    @property
    def signature(self) -> Signature:
        """The target's."""
        return self.context.bench.target.signature

    @property
    def entry(self) -> dict[str, Scalar]:
        """The entry at which a search begins."""
        return entry_of(self.signature, self.start.workload)

    @property
    def seed(self) -> int:
        """Base seed of all probes: that of the failure."""
        return base_seed(self.start.workload)

    def workload(self, entry: Mapping[str, Scalar], other: int = 0) -> Workload:
        """The workload of an entry, with the failure's type and seed, or with `other` values."""
        return single(self.context.bench.target, entry, self.start.workload.dtype, self.seed + other)

    def ask(
        self, entry: Mapping[str, Scalar], inputs: Layout | None = None, other: int = 0
    ) -> Generator[Tick, None, Outcome]:
        """The gate's answer on a workload, in a layout or the failure's, with its seed or `other` values.

        Raises SearchSpent without a budget.
        """
        workload, inputs = self.workload(entry, other), inputs or self.start.inputs
        key = (*values_key(workload), inputs)
        if key not in self.outcomes:
            self._spend()
            yield from self.look(workload, inputs)
        return self.outcomes[key]

    def look(self, workload: Workload, inputs: Layout | None = None) -> Generator[Tick, None, Check]:
        """The gate's answer on a workload, asked now."""
        inputs = inputs or self.start.inputs
        if beyond := unsupported(self.side, workload):
            return self._answer(Check(workload=workload, inputs=inputs, status="refused", message=beyond))
        try:
            check = yield from self._checker.look(workload, inputs)
        except WorkFailed as failed:
            # Its generator or its reference does not take every size: none of the variant's faults.
            check = Check(workload=workload, inputs=inputs, status="refused", message=failed.message)
        yield from self.context.bench.discard(workload)
        return self._answer(check)

    def calls(self, workload: Workload, inputs: Layout) -> Generator[Tick, None, tuple[bool, bool]]:
        """Whether the first call of a check is right, and whether all later calls are. Raises SearchSpent."""
        self._spend()
        try:
            yield from self.context.bench.expect(workload)
            call = self.context.bench.call(workload, self.side.name)
            request = Compute(call, inputs, hurried=True)  # Else another call may come before.
            reply = yield from self._checker.worker.ask(request, limit_s=HANG_S, note="each call")
            paths = files_of(call, reply)
        except WorkerLost as lost:
            if lost.kind == "hung":
                raise SearchSpent from lost
            return False, False
        except (WorkFailed, Refusal):
            return False, False
        right = []
        for path in paths:
            finding = yield from self.context.bench.judge(Compare(call, (path,)), JUDGE_LIMIT_S, "each call")
            noticed = "" if self.start.wrong else complaint(self.side, reply, finding, "")[0]
            right.append(not (noticed or finding.badness[0] or finding.message or finding.checker))
        return right[0], all(right[1:] or right)

    def fails_after(self, start: Check) -> Generator[Tick, None, bool]:
        """Whether calls fail in this process that are right in a process of their own."""
        others = {values_key(check.workload): check.workload for check in checked(self.context, self.side.name)}
        others.pop(values_key(start.workload), None)
        alike = [workload for workload in others.values() if workload.name == start.workload.name]
        again = start.workload.model_copy(update={"seed": start.workload.seed + 1})
        for workload in [
            *alike,
            again,
            *[workload for workload in others.values() if workload not in alike],
            start.workload,
        ]:
            if not all((yield from self.calls(workload, start.inputs))):
                self.begin_process(self._checker.side.threads)
                if all((yield from self.calls(workload, start.inputs))):
                    return True
        return False

    def _spend(self) -> None:
        if self.asked >= self.most or time.monotonic() > self.end:
            raise SearchSpent

    def _answer(self, check: Check) -> Check:
        self.asked += 1
        self._remember(check)
        return check

    def _remember(self, check: Check) -> None:
        answer = outcome(check, self.failing.kind)
        if answer == "fails" and check not in self.failures:
            self.failures.append(check)
        self.outcomes[(*values_key(check.workload), check.inputs)] = answer

    def close(self) -> None:
        """End the worker; the next probe has a fresh one."""
        self._checker.worker.close()


def outcome(check: Check, kind: str) -> Outcome:
    """Whether a check shows the failure that is looked for, passes, or shows another failure."""
    own_kind = kind_of(check)
    return "passes" if not own_kind else "fails" if own_kind == kind else "other"

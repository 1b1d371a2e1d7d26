"""What every step that looks for a cause shares: what fails, and a gate that answers probe after probe."""

import time
from collections.abc import Generator, Iterable, Mapping, Sequence

from loop.base.errors import WorkFailed
from loop.base.processes import Tick
from loop.debug.shrinking import Failing, failing, kind_of
from loop.gate.kernel import compile_all, to_build
from loop.gate.order import values_key
from loop.gate.verify import Checker, Job
from loop.model.debugging import Outcome, Probe
from loop.model.measurement import Check
from loop.model.output import VerifyOutput, outputs_of
from loop.model.target import Workload
from loop.model.tuning import Scalar
from loop.model.workloads import base_seed, entry_of, single, unsupported
from loop.steps.context import Context
from loop.workers.bench import Side
from loop.workers.kept import KeptWorker

HANG_S = 5.0
"""A probe that has not come back by then hangs; small workloads take milliseconds."""


class Spent(Exception):
    """The budget of a search is used up."""


def failing_variants(context: Context) -> tuple[Failing, ...]:
    """What the last checks of this session found wrong; nothing where a control failed."""
    last = {record.action: record for record in context.finished if record.output}
    checked = outputs_of(last.values(), VerifyOutput)
    trusted = [output for output in checked if output.control is None or not output.control.first_failure]
    signature = context.bench.target.signature
    found = (failing(checks, signature) for output in trusted for checks in output.variants)
    return tuple(one for one in found if one is not None)


def sides(context: Context, names: Sequence[str]) -> Generator[Tick, None, dict[str, Side]]:
    """The named variants with their builds, emulated or not; those that do not compile are left out."""
    bench = context.bench
    emulated = [name for name in names if name in context.task.emulated]
    others = [name for name in names if name not in emulated]
    wanted = {**to_build(context, others), **bench.emulations(emulated)}
    made, _ = yield from compile_all(context, wanted)
    builds = {one.variant: one for one in made}
    usable = [name for name in names if name in builds or name not in wanted]
    return {name: bench.side(name, builds.get(name), emulated=name in emulated) for name in usable}


def failing_sides(context: Context, found: Sequence[Failing]) -> Generator[Tick, None, list[tuple[Failing, Side]]]:
    """Failing variants with their sides. Raises LoopError when a source was edited since it was checked."""
    made = yield from sides(context, [one.variant for one in found])
    for one in found:
        side = made.get(one.variant)
        if side is None or side.build_id != one.build_id:
            what = "was edited after it was checked" if side else "no longer compiles"
            raise WorkFailed(f"{one.variant} {what}", hint="run the session again")
    return [(one, made[one.variant]) for one in found]


class Prober:
    """Asks the gate whether one variant still fails, workload after workload; it remembers every answer."""

    def __init__(
        self,
        context: Context,
        failing: Failing,
        side: Side,
        most: int,
        limit_s: float,
        known: Iterable[Probe] = (),
    ) -> None:
        self.context, self.failing, self.side = context, failing, side
        self.end = time.monotonic() + limit_s
        self.start = failing.start
        self.probes = {values_key(one.workload): one for one in known if one.variant == failing.variant}
        """Workloads, by name and seed, to what the gate said of them; also what an earlier step had asked."""
        self.asked: list[Probe] = []
        """Those that were asked here."""
        self.most = most
        self._remember(self.start)
        job = Job(side, (), layouts=False, call_limit_s=HANG_S)
        self._checker = Checker(job, KeptWorker(context.bench, side))

    @property
    def entry(self) -> dict[str, Scalar]:
        """Where a search begins."""
        return entry_of(self.context.bench.target.signature, self.start.workload)

    @property
    def seed(self) -> int:
        """Base seed of all probes: that of the failure."""
        return base_seed(self.start.workload)

    def workload(self, entry: Mapping[str, Scalar], other: int = 0) -> Workload:
        """The workload of an entry, with the failure's type and seed, or with `other` values."""
        return single(self.context.bench.target, entry, self.start.workload.dtype, self.seed + other)

    def ask(self, entry: Mapping[str, Scalar], other: int = 0) -> Generator[Tick, None, Outcome]:
        """What the gate says of a workload, in the layout of the failure. Raises Spent without a budget."""
        workload = self.workload(entry, other)
        if values_key(workload) not in self.probes:
            if len(self.asked) == self.most or time.monotonic() > self.end:
                raise Spent
            yield from self.look(workload)
        return self.probes[values_key(workload)].outcome

    def look(self, workload: Workload) -> Generator[Tick, None, Check]:
        """What the gate says of a workload now."""
        if beyond := unsupported(self.side, workload):
            return self._answer(
                Check(workload=workload, inputs=self.start.inputs, status="refused", message=beyond)
            )
        try:
            check = yield from self._checker.look(workload, self.start.inputs)
        except WorkFailed as failed:
            if self.context.bench.target.generator is None:
                raise
            # Its generator does not make every size: none of the variant's faults.
            check = Check(workload=workload, inputs=self.start.inputs, status="refused", message=failed.message)
        yield from self.context.bench.discard(workload)
        return self._answer(check)

    def _answer(self, check: Check) -> Check:
        self.asked.append(self._remember(check))
        return check

    def _remember(self, check: Check) -> Probe:
        probe = Probe(
            variant=self.failing.variant,
            workload=check.workload,
            outcome=outcome(check, self.failing.kind),
            message=check.message,
        )
        self.probes[values_key(check.workload)] = probe
        return probe

    def close(self) -> None:
        """End the worker; the next probe has a fresh one."""
        self._checker.worker.close()


def outcome(check: Check, kind: str) -> Outcome:
    """Whether it is the failure that is looked for, none, or another."""
    found = kind_of(check)
    return "passes" if not found else "fails" if found == kind else "other"

"""Shared by the debugging steps: the failure to examine, and a prober that asks the gate."""

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from math import prod

from loop.base.errors import WorkFailed
from loop.base.processes import Tick
from loop.calls.call import LibraryTerms
from loop.gate.kernel import compile_all, to_build
from loop.gate.verify import Job, SideChecker, describe_fault, output_files, verify, workload_key
from loop.model.debugging import ComponentChecks, DebugOutput, Outcome, Smallest
from loop.model.dtypes import Layout
from loop.model.measurement import Check, VariantChecks
from loop.model.output import ChecksOutput, outputs_of
from loop.model.signature import Signature
from loop.model.target import Component, Scalar, Workload
from loop.model.workloads import entry_of, expand_sets, format_entry, make_workload, reason_unsupported
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.workers.bench import JUDGE_LIMIT_S, KeptWorker, Side
from loop.workers.judge_messages import Compare
from loop.workers.messages import Compute
from loop.workers.program import Refusal, WorkerLost

HANG_S = 5.0
"""Seconds after which a probe counts as hung; small workloads take milliseconds."""
PROBES = 200
"""Most workloads that are tried to find a variant's smallest failing one."""
NOTHING_WRONG = "no variant failed a check: no cause to look for"
Entry = Mapping[str, Scalar]
Search = Generator[Entry, bool, None]
"""Yields workloads and receives whether each fails. The last failing one is the result."""


@dataclass(frozen=True)
class Failing:
    """A wrong variant, and the kind of failure that the debugging steps examine."""

    variant: str
    build_id: str | None
    kind: str
    """The kind of failure, by `kind_of`."""
    start: Check
    """The smallest check with this kind of failure, where a search begins."""
    telling: Check
    """The check with the most even split of right and wrong elements: it shows their pattern best."""

    def outcome(self, check: Check) -> Outcome:
        """`fails`: the check shows this kind of failure; `other`: another kind; or `passes`."""
        own_kind = kind_of(check)
        return "passes" if not own_kind else "fails" if own_kind == self.kind else "other"


def kind_of(check: Check) -> str:
    """The kind of a check's failure, as in `wrong`, `hung` or `refused: error 3`; empty if it passed. Failures of
    one kind count as one fault. So a shape that the variant refuses is no smaller form of a wrong output.
    `inexact`: the check failed although every element is within the tolerance."""
    if check.passed:
        return ""
    if check.status == "wrong":
        return "wrong" if check.wrong else "inexact"
    code = check.fault.code if check.fault else ""
    return ": ".join(filter(None, (check.status, code or check.cause)))


def failing_kind(checks: VariantChecks, signature: Signature) -> Failing | None:
    """The most frequent kind of failure, with checks to start from; None if all checks passed."""
    failed = [check for check in checks.checks if not check.passed]
    if not failed:
        return None
    kinds = [kind_of(check) for check in failed]
    most = max(dict.fromkeys(kinds), key=kinds.count)
    alike = [check for check in failed if kind_of(check) == most]

    def effort(check: Check) -> tuple[bool, bool, int]:
        """Sort key: contiguous inputs first, then sizes with a shorthand, then small sizes."""
        sizes = check.workload.sizes
        same = all(len({sizes[name] for name in names}) == 1 for names in signature.shorthand.values())
        return check.inputs != "contiguous", not same, prod(sizes.values())

    def unevenness(check: Check) -> tuple[bool, bool, float, int]:
        share = check.wrong / check.total if check.total else 1.0
        plain = check.workload.values == "normal"
        return check.inputs != "contiguous", not plain, abs(share - 0.5), -check.total

    start, telling = min(alike, key=effort), min(alike, key=unevenness)
    return Failing(checks.variant, checks.build_id, most, start, telling)


def checks_of(context: Context, variant: str) -> list[Check]:
    """All checks of a variant in this session, in the order of the verifications."""
    outputs = outputs_of(context.finished, ChecksOutput)
    return [check for output in outputs for of in output.variants if of.variant == variant for check in of.checks]


def sides_of(context: Context, names: Sequence[str]) -> Generator[Tick, None, dict[str, Side]]:
    """Name to side (variant with its build); variants that do not compile are left out."""
    bench = context.bench
    emulated = [name for name in names if name in context.task.emulated]
    others = [name for name in names if name not in emulated]
    wanted = {**to_build(context, others), **bench.emulated_variants(emulated)}
    built, _ = yield from compile_all(context, wanted)
    builds = {build.variant: build for build in built}
    usable = [name for name in names if name in builds or name not in wanted]
    return {name: bench.make_side(name, builds.get(name), emulated=name in emulated) for name in usable}


def failing_sides(context: Context) -> Generator[Tick, None, list[tuple[Failing, Side]]]:
    """The failures that this session's last checks found, each with its side; none if a control failed. Raises
    LoopError if a source was edited after it was checked."""
    last = {record.action: record for record in context.finished if record.output}
    outputs = outputs_of(last.values(), ChecksOutput)
    trusted = [output for output in outputs if output.control is None or not output.control.first_failure]
    signature = context.bench.target.signature
    every = (failing_kind(checks, signature) for output in trusted for checks in output.variants)
    failures = [failure for failure in every if failure is not None]
    by_name = yield from sides_of(context, [failure.variant for failure in failures])
    for failure in failures:
        side = by_name.get(failure.variant)
        if side is None or side.build_id != failure.build_id:
            what = "was edited after it was checked" if side else "no longer compiles"
            raise WorkFailed(f"{failure.variant} {what}", hint="run the session again")
    return [(failure, by_name[failure.variant]) for failure in failures]


class SearchSpent(Exception):
    """The budget of a search is used up."""


class FailureProber:
    """Asks the gate whether one variant fails on given workloads, and caches every answer."""

    def __init__(self, context: Context, failing: Failing, side: Side, most: int, limit_s: float) -> None:
        self.context, self.bench, self.failing, self.side = context, context.bench, failing, side
        self.most, self.end = most, time.monotonic() + limit_s
        self.start, self.signature = failing.start, context.bench.target.signature
        self.entry, self.seed = entry_of(self.signature, self.start.workload), self.start.workload.base_seed
        """Base seed of all probes; `entry` is the workload where a search begins."""
        self.outcomes: dict[tuple[str, int, Layout], Outcome] = {}
        """Workload name, seed and layout to the gate's answer."""
        self.asked = 0
        """Number of probes made."""
        self.failures = [check for check in checks_of(context, failing.variant) if kind_of(check) == failing.kind]
        """Checks that show this kind of failure, in the order in which they were made."""
        self._remember(self.start)
        self._checker = self._new_checker(None)

    def _new_checker(self, threads: int | None) -> SideChecker:
        side = replace(self.side, threads=threads) if threads else self.side
        return SideChecker(Job(side, (), layouts=False, call_limit_s=HANG_S), KeptWorker(self.bench, side))

    def begin_process(self, threads: int | None = None) -> None:
        """Make later calls in a new process with this many threads; None: as in verification."""
        self.close()
        self._checker = self._new_checker(threads)

    def close(self) -> None:
        """End the worker process; the next probe starts a fresh one."""
        self._checker.worker.close()

    def workload(self, entry: Entry, other: int = 0) -> Workload:
        """The workload of an entry, with the failure's type and seed; `other` shifts the seed."""
        return make_workload(self.bench.target, entry, self.start.workload.dtype, self.seed + other)

    def ask(self, entry: Entry, inputs: Layout | None = None, other: int = 0) -> Generator[Tick, None, Outcome]:
        """The gate's answer on a workload, cached. `other` is added to the seed. `inputs`: the layout; None: that
        of the failure. Raises SearchSpent if the budget is used up."""
        workload, inputs = self.workload(entry, other), inputs or self.start.inputs
        key = (*workload_key(workload), inputs)
        if key not in self.outcomes:
            self._spend()
            yield from self.look(workload, inputs)
        return self.outcomes[key]

    def look(self, workload: Workload, inputs: Layout | None = None) -> Generator[Tick, None, Check]:
        """Check a workload now, without the cache or the budget."""
        inputs, why = inputs or self.start.inputs, reason_unsupported(self.side, workload)
        self.asked += 1
        check = Check(workload=workload, inputs=inputs, status="refused", message=why)
        if not why:
            try:
                check = yield from self._checker.check_layout(workload, inputs)
            except WorkFailed as failed:
                # The generator or reference may reject a size: no fault of the variant.
                check = check.model_copy(update={"message": failed.message})
            yield from self.bench.discard_answer(workload)
        self._remember(check)
        return check

    def _spend(self) -> None:
        if self.asked >= self.most or time.monotonic() > self.end:
            raise SearchSpent

    def _remember(self, check: Check) -> None:
        answer = self.failing.outcome(check)
        if answer == "fails" and check not in self.failures:
            self.failures.append(check)
        self.outcomes[(*workload_key(check.workload), check.inputs)] = answer

    def calls(self, workload: Workload, inputs: Layout) -> Generator[Tick, None, tuple[bool, bool]]:
        """Whether the first call is right, and whether all later calls are. Raises SearchSpent."""
        self._spend()
        bench, right = self.bench, list[bool]()
        try:
            yield from bench.prepare_answer(workload)
            call = bench.make_call(workload, self.side.name)
            request = Compute(call, inputs, is_hurried=True)  # Else another call may come first.
            reply = yield from self._checker.worker.ask(request, limit_s=HANG_S, note="each call")
            paths = output_files(call, reply)
        except WorkerLost as lost:
            if lost.kind == "hung":
                raise SearchSpent from lost
            return False, False
        except (WorkFailed, Refusal):
            return False, False
        for path in paths:
            finding = yield from bench.ask_judge(Compare(call, (path,)), JUDGE_LIMIT_S, "each call")
            noticed = "" if self.start.wrong else describe_fault(self.side, reply, finding, "")[0]
            right.append(not (noticed or finding.badness[0] or finding.plain_excess or finding.checker))
        return right[0], all(right[1:] or right)

    def fails_after(self, start: Check) -> Generator[Tick, None, bool]:
        """Whether calls that are right in a fresh process fail after other calls in this one."""
        others = {
            workload_key(check.workload): check.workload for check in checks_of(self.context, self.side.name)
        }
        others.pop(workload_key(start.workload), None)
        again = start.workload.model_copy(update={"seed": start.workload.seed + 1})
        same_name = [workload for workload in others.values() if workload.name == start.workload.name]
        rest = [workload for workload in others.values() if workload.name != start.workload.name]
        for workload in [*same_name, again, *rest, start.workload]:
            if not all((yield from self.calls(workload, start.inputs))):
                self.begin_process(self._checker.side.threads)
                if all((yield from self.calls(workload, start.inputs))):
                    return True
        return False


def smallest(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Find the smallest workload on which each wrong variant fails, as checked by the gate."""
    every: list[Smallest] = []
    texts = []
    pairs = yield from failing_sides(context)
    for failing, side in pairs:
        with closing(FailureProber(context, failing, side, PROBES, context.budget_s / len(pairs))) as prober:
            every.append((yield from _smallest(prober)))
        end = "nothing smaller among them does" if every[-1].minimal else "the budget ended the search"
        tried = every[-1].note or f"{every[-1].probes} workloads tried, {end}"
        texts.append(f"{failing.variant} fails on {every[-1].check.workload.name} ({tried})")
    return Result(DebugOutput(ok=True, message="; ".join(texts) or NOTHING_WRONG, smallest=tuple(every)))


def _smallest(prober: FailureProber) -> Generator[Tick, None, Smallest]:
    """Shrink the failing workload, then confirm in a fresh process that the smallest one fails."""
    best, minimal = prober.entry, False
    search = shrink(best, prober.signature)
    with suppress(SearchSpent):
        try:
            entry = next(search)
            while True:
                fails = (yield from prober.ask(entry)) == "fails"
                best = dict(entry) if fails else best
                entry = search.send(fails)
        except StopIteration:
            minimal = True
    prober.close()
    probes = prober.asked
    check = yield from prober.look(prober.workload(best))
    steady = prober.failing.outcome(check) == "fails"
    check = check if steady else prober.start
    return Smallest(
        variant=prober.failing.variant,
        check=check,
        began=prober.start.workload.name,
        words=format_entry(entry_of(prober.signature, check.workload)),
        seed=prober.seed,
        probes=probes,
        minimal=minimal and steady,
        note="" if steady else "smaller ones fail at times, or only after other calls",
    )


def shrink(entry: Entry, signature: Signature) -> Search:
    """Drop special values and attributes, then lower each dimension; repeat until nothing changes. Dimensions that
    share a shorthand are first lowered together. A dimension is doubled from 1, because small sizes are quick.
    Then bisection finds a failing size whose predecessor does not fail."""
    words = {word: names for word, names in signature.shorthand.items() if word in entry}
    sizes = {name: entry[word] for word, names in words.items() for name in names}
    now: Entry = {**sizes, **{name: value for name, value in entry.items() if name not in words}}
    before: Entry = {}
    while now != before:
        before = now
        for key in [key for key in now if key not in (*signature.dimensions, "dtype")]:
            plainer = {name: value for name, value in now.items() if name != key}
            now = plainer if (yield plainer) else now
        together = [names for names in signature.shorthand.values() if len({now[name] for name in names}) == 1]
        for names in together:
            now = yield from _lower(now, names)
        for name in sorted(signature.dimensions, key=lambda name: -int(now[name])):
            now = yield from _lower(now, (name,))


def _lower(entry: Entry, names: Iterable[str]) -> Generator[Entry, bool, Entry]:
    """Lower dimensions to one common size, as far as the workload still fails."""
    low, high = 0, max(int(entry[name]) for name in names)
    size = 1
    while high - low > 1:
        smaller = {**entry, **dict.fromkeys(names, size)}
        if (yield smaller):
            entry, high = smaller, size
        else:
            low = size
        size = 2 * low if 0 < 2 * low < high else (low + high) // 2
    return entry


def components(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Verify each component of the wrong variants, to find the one with the fault."""
    pairs = yield from failing_sides(context)
    every: list[ComponentChecks] = []
    missing: list[str] = []
    texts: list[str] = []
    for _, side in pairs:
        own, without = yield from check_components(context, side)
        every, missing = [*every, *own], [*missing, *without]
        wrong = [part for part in own if part.checks.first_failure]
        texts += [f"{part.component} of {side.name} {part.outcome}" for part in wrong]
        if own and not wrong:  # If a component could not be verified, the fault may lie in it.
            so = "" if without else ", so the fault lies in how they are put together"
            texts.append(f"{side.name}: right by itself: {', '.join(part.component for part in own)}{so}")
        texts += without
    return Result(
        DebugOutput(
            ok=True,
            message="; ".join(texts) if pairs else NOTHING_WRONG,
            not_exercised=tuple(missing),
            components=tuple(every),
            wrong=tuple(part.component for part in every if part.checks.first_failure),
        )
    )


def check_components(
    context: Context, side: Side
) -> Generator[Tick, None, tuple[list[ComponentChecks], list[str]]]:
    """The checks of a variant's components, and sentences on those that could not be verified."""
    bench = context.bench
    parts = {n: p for n, p in bench.target.components.items() if side.name in p.variants}
    every: list[ComponentChecks] = []
    missing = [] if parts else [f"components of {side.name}: target.yaml names none"]
    usual = bench.target.dtypes["cuda" if side.emulated else bench.device]
    dtype = usual if usual in side.dtypes else side.dtypes[0]
    for name, part in parts.items():
        if part.signature is None and any(component.checks.first_failure for component in every):
            continue
        entered = yield from _side_at_component(context, side, part)
        if isinstance(entered, str):
            missing.append(f"{name} of {side.name}: {entered}")
            continue
        judged, alone = bench.copy_for_component(part), entered.copy_as(f"{side.name} {name}")
        workloads = expand_sets(judged.target, judged.target.workloads, dtype, context.task.seed)
        (checks,) = yield from verify(judged, [Job(alone, workloads, layouts=False)])
        every.append(ComponentChecks(component=name, variant=side.name, title=part.title, checks=checks))
    return every, missing


def _side_at_component(context: Context, side: Side, part: Component) -> Generator[Tick, None, Side | str]:
    """A side that calls a component's entry in the variant's library, or a sentence why not."""
    if part.flags:
        bench, name = context.bench, side.name
        variant = (bench.emulated_variants if side.emulated else bench.compiled_variants)([name])[name]
        recipe = variant.build.model_copy(update={"flags": (*variant.build.flags, *part.flags)})
        flagged = variant.model_copy(update={"build": recipe})
        built, failed = yield from compile_all(context, {name: flagged})
        if failed:
            return f"no build with {' '.join(part.flags)}: {failed[0].message}"
        side = bench.make_side(name, built[0], emulated=side.emulated)
    assert isinstance(side.terms, LibraryTerms)
    return side.copy_as(side.name, terms=side.terms.replace(entry=part.entry_in(side.name)))

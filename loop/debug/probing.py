"""Shared by the debugging steps: the failure to examine, and a prober that asks the gate."""

import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from loop.base.errors import WorkFailed
from loop.base.processes import Tick
from loop.calls.call import LibraryTerms
from loop.gate.kernel import build_sides, compile_all
from loop.gate.verify import Job, SideChecker, WhichCalls, verify, workload_key
from loop.model.dtypes import Layout
from loop.model.measurement import Check, VariantChecks
from loop.model.output import ChecksOutput, ComponentChecks, DebugOutput, ProbeOutcome, Smallest, outputs_of
from loop.model.target import Component, Scalar, Signature, Workload
from loop.model.workloads import expand_sets, explain_unsupported, format_entry, make_entry, make_workload
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.workers.bench import KeptWorker, Side

HANG_S = 5.0
"""Seconds after which a probe counts as hung; small workloads take milliseconds."""
MOST_PROBES = 200
"""Most workloads that one search tries."""
NOTHING_WRONG = "no variant failed a check: no cause to look for"
Entry = Mapping[str, Scalar]
Fails = Callable[[Entry], Generator[Tick, None, bool]]
"""Tries a workload, and returns whether the variant fails on it."""


def failure_kind(check: Check) -> str:
    """The kind of a check's failure, as in `wrong`, `hung` or `refused: error 3`; empty if it passed.
    Failures of one kind count as one fault: a shape that the variant refuses is no smaller form of a
    wrong output. `inexact`: it failed although every element is within the tolerance."""
    if check.passed:
        return ""
    if check.status == "wrong":
        return "wrong" if check.wrong else "inexact"
    code = check.fault.code if check.fault else ""
    return ": ".join(filter(None, (check.status, code or check.cause)))


class BudgetSpent(Exception):
    """The budget of a search is used up."""


class FailureProber:
    """The most frequent kind of failure of a wrong variant. Asks the gate whether the variant fails alike on other
    workloads, and caches every answer. As a context it has a time limit, and ends the worker process."""

    def __init__(self, context: Context, side: Side, checks: VariantChecks, limit_s: float) -> None:
        """`checks`: of the variant, of which at least one failed."""
        self.bench, self.side, self.limit_s = context.bench, side, limit_s
        self.deadline = math.inf
        self.variant, self.signature = checks.variant, context.bench.target.signature
        kinds = [failure_kind(check) for check in checks.checks if not check.passed]
        self.kind = max(dict.fromkeys(kinds), key=kinds.count)
        """The kind of failure, by `failure_kind`."""
        of_kind = [check for check in checks.checks if failure_kind(check) == self.kind]

        def effort(check: Check) -> tuple[bool, bool, int]:
            """Sort key: contiguous inputs first, then sizes with a shorthand, then small sizes."""
            sizes, has_shorthand = check.workload.sizes, True
            for names in self.signature.shorthand.values():
                has_shorthand = has_shorthand and len({sizes[name] for name in names}) == 1
            return check.inputs != "contiguous", not has_shorthand, math.prod(sizes.values())

        def unevenness(check: Check) -> tuple[bool, bool, float, int]:
            """Sort key: contiguous inputs first, then normal values, about half wrong, and many elements."""
            wrong_share = check.wrong / check.total if check.total else 1.0
            is_normal = check.workload.values == "normal"
            return check.inputs != "contiguous", not is_normal, abs(wrong_share - 0.5), -check.total

        self.start_check = min(of_kind, key=effort)
        """The smallest check with this kind of failure, where a search begins."""
        self.clearest_check = min(of_kind, key=unevenness)
        """The check with the most even split of right and wrong elements: it shows their pattern best."""
        start = self.start_check.workload
        self.entry, self.seed = make_entry(self.signature, start), start.base_seed
        """Base seed of all probes; `entry` is the workload where a search begins."""
        start_key = (*workload_key(start), self.start_check.inputs)
        self.outcomes: dict[tuple[str, int, Layout], ProbeOutcome] = {start_key: "fails"}
        """Workload name, seed and layout to the gate's answer."""
        self.probe_count = 0
        in_session = [part for output in outputs_of(context.finished, ChecksOutput) for part in output.variants]
        self.checks = [check for part in in_session if part.variant == self.variant for check in part.checks]
        """All checks of the variant in this session, in the order of the verifications."""
        self.failures = [check for check in self.checks if failure_kind(check) == self.kind]
        """Checks that show this kind of failure, in the order in which they were made."""
        self._checker = self._new_checker(None)

    def __enter__(self) -> "FailureProber":
        self.deadline = time.monotonic() + self.limit_s
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def classify(self, check: Check) -> ProbeOutcome:
        """`fails`: the check shows this kind of failure; `other`: another kind; or `passes`."""
        kind = failure_kind(check)
        if not kind:
            return "passes"
        return "fails" if kind == self.kind else "other"

    def _new_checker(self, threads: int | None) -> SideChecker:
        """A checker with a worker process of its own, which starts with the first call."""
        side = replace(self.side, threads=threads) if threads else self.side
        return SideChecker(Job(side, (), call_limit_s=HANG_S), KeptWorker(self.bench, side))

    def begin_process(self, threads: int | None = None) -> None:
        """Make later calls in a new process with this many threads; None: as in verification."""
        self.close()
        self._checker = self._new_checker(threads)

    def close(self) -> None:
        """End the worker process; the next probe starts a fresh one."""
        self._checker.worker.close()

    def build_workload(self, entry: Entry, seed_shift: int = 0) -> Workload:
        """The workload of an entry, with the failure's type, and its seed plus `seed_shift`."""
        return make_workload(self.bench.target, entry, self.start_check.workload.dtype, self.seed + seed_shift)

    def ask_gate(
        self, entry: Entry, inputs: Layout | None = None, seed_shift: int = 0
    ) -> Generator[Tick, None, ProbeOutcome]:
        """The gate's answer on a workload, cached. `inputs`: the layout; None: that of the failure.
        Raises BudgetSpent if the budget is used up."""
        workload, layout = self.build_workload(entry, seed_shift), inputs or self.start_check.inputs
        key = (*workload_key(workload), layout)
        if key not in self.outcomes:
            self._check_budget()
            yield from self.check(workload, layout)
        return self.outcomes[key]

    def check(self, workload: Workload, inputs: Layout | None = None) -> Generator[Tick, None, Check]:
        """Check a workload now, without the cache or the budget, and keep the answer in the cache. `inputs`: the
        layout; None: that of the failure. A size that the variant, the generator or the reference does not take
        gives a check with status `refused`."""
        inputs, why = inputs or self.start_check.inputs, explain_unsupported(self.side, workload)
        self.probe_count += 1
        check = Check(workload=workload, inputs=inputs, status="refused", message=why)
        if not why:
            try:
                yield from self.bench.prepare_answer(workload)
                check = yield from self._checker.make_check(workload, inputs)
            except WorkFailed as failed:
                check = check.model_copy(update={"message": failed.message})
            yield from self.bench.discard_answer(workload)
        outcome = self.classify(check)
        self.failures += [check] if outcome == "fails" else []
        self.outcomes[(*workload_key(workload), inputs)] = outcome
        return check

    def _check_budget(self) -> None:
        """Raise BudgetSpent if no further probe may be made."""
        if self.probe_count >= MOST_PROBES or time.monotonic() > self.deadline:
            raise BudgetSpent

    def find_wrong_calls(self, check: Check) -> Generator[Tick, None, WhichCalls]:
        """Repeat a check in the present process: which of its calls are wrong. `all` if they give no output, or
        outputs that are wrong together. Raises BudgetSpent, also if a call hangs."""
        self._check_budget()
        try:
            repeat = yield from self._checker.make_check(check.workload, check.inputs)
        except WorkFailed:
            return "all"
        if repeat.status == "hung":
            raise BudgetSpent
        wrong_calls = self._checker.wrong_calls.get((workload_key(check.workload), check.inputs))
        if repeat.passed:
            return "none"
        return "all" if wrong_calls is None or wrong_calls.which == "none" else wrong_calls.which


def find_failures(context: Context) -> Generator[Tick, None, list[FailureProber]]:
    """A prober for each variant that this session's last checks found wrong; none if a control
    failed. Raises LoopError if a source was edited after it was checked."""
    last_by_action = {record.action: record for record in context.finished if record.output}
    wrong: list[VariantChecks] = []
    for output in outputs_of(last_by_action.values(), ChecksOutput):
        # Where the control is wrong, the checks prove nothing.
        if output.control is None or not output.control.first_failure:
            wrong += [checks for checks in output.variants if checks.first_failure]
    side_by_name, _ = yield from build_sides(context, [checks.variant for checks in wrong])
    probers = []
    for checks in wrong:
        side = side_by_name.get(checks.variant)
        if side is None or side.build_id != checks.build_id:
            problem = "was edited after it was checked" if side else "no longer compiles"
            raise WorkFailed(f"{checks.variant} {problem}", hint="run the session again")
        probers.append(FailureProber(context, side, checks, context.budget_s / len(wrong)))
    return probers


def smallest(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Find the smallest workload on which each wrong variant fails, as checked by the gate.
    The step passes whatever it finds."""
    answers, texts = list[Smallest](), list[str]()
    for prober in (yield from find_failures(context)):
        with prober:
            answer = yield from _find_smallest(prober)
        answers.append(answer)
        ending = "no smaller one fails" if answer.minimal else "the budget ended the search"
        ending = f"{answer.probes} smaller tried, {ending}" if answer.probes else "no smaller one to try"
        texts.append(f"{prober.variant} fails on {answer.check.workload.name} ({answer.note or ending})")
    message = "; ".join(texts) or NOTHING_WRONG
    return Result(DebugOutput(ok=True, message=message, smallest=tuple(answers)), idle=not answers)


def _find_smallest(prober: FailureProber) -> Generator[Tick, None, Smallest]:
    """Shrink the failing workload, then confirm in a fresh process that the smallest one fails."""
    best: Entry = prober.entry
    note, is_minimal = "it fails at times, or only after other calls", False

    def fails(entry: Entry) -> Generator[Tick, None, bool]:
        """Whether the variant fails on this workload; if so, it is the smallest so far."""
        nonlocal best, note
        has_failed = (yield from prober.ask_gate(entry)) == "fails"
        if has_failed and entry != prober.entry:
            best, note = entry, "smaller ones fail at times, or only after other calls"
        return has_failed

    with suppress(BudgetSpent):
        yield from shrink(best, prober.signature, fails)
        is_minimal = True
    prober.close()
    probes = prober.probe_count
    check = yield from prober.check(prober.build_workload(best))
    is_confirmed = prober.classify(check) == "fails"
    if not is_confirmed:
        check = prober.start_check
    return Smallest(
        variant=prober.variant,
        check=check,
        words=format_entry(make_entry(prober.signature, check.workload)) if is_confirmed else "",
        seed=prober.seed,
        probes=probes,
        minimal=is_minimal and is_confirmed,
        note="" if is_confirmed else note,
    )


def shrink(entry: Entry, signature: Signature, fails: Fails) -> Generator[Tick, None, None]:
    """Drop special values and attributes, then lower each dimension; repeat until nothing changes.
    Dimensions that share a shorthand are first lowered together. Returns nothing: the result is the last workload
    for which `fails` returned True; `entry` if there was none."""
    current: Entry = {}
    for name, value in entry.items():  # Replace a shorthand by its dimensions.
        current = {**current, **dict.fromkeys(signature.shorthand.get(name, (name,)), value)}
    previous: Entry = {}
    while current != previous:
        previous = current
        for key in previous:
            if key not in (*signature.dimensions, "dtype"):
                without_key = {name: value for name, value in current.items() if name != key}
                current = without_key if (yield from fails(without_key)) else current
        for names in signature.shorthand.values():
            if len({current[name] for name in names}) == 1:
                current = yield from _lower(current, names, fails)
        for name in sorted(signature.dimensions, key=lambda name: -int(current[name])):
            current = yield from _lower(current, (name,), fails)


def _lower(entry: Entry, names: Iterable[str], fails: Fails) -> Generator[Tick, None, Entry]:
    """Lower dimensions to one common size, as far as the workload still fails; returns the smallest
    that failed, or `entry`. Doubles the size from 1, because small sizes are quick. Then bisection
    finds a failing size whose predecessor does not fail."""
    low, high = 0, max(int(entry[name]) for name in names)
    size = 1
    while high - low > 1:
        smaller = {**entry, **dict.fromkeys(names, size)}
        if (yield from fails(smaller)):
            entry, high = smaller, size
        else:
            low = size
        size = 2 * low if 0 < 2 * low < high else (low + high) // 2
    return entry


def components(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Verify each component of the wrong variants, to find the one with the fault.
    The step passes whatever it finds."""
    failures = yield from find_failures(context)
    checked, unchecked_parts, texts = list[ComponentChecks](), list[str](), list[str]()
    for side in [prober.side for prober in failures]:
        parts, reasons = yield from check_components(context, side)
        checked += parts
        unchecked_parts += reasons
        wrong_parts = [part for part in parts if part.checks.first_failure]
        texts += [f"{part.component} of {side.name} {part.outcome}" for part in wrong_parts]
        if parts and not wrong_parts:  # If a component could not be verified, the fault may lie in it.
            conclusion = "" if reasons else ", so the fault lies in how they are put together"
            names = ", ".join(part.component for part in parts)
            texts.append(f"{side.name}: right by itself: {names}{conclusion}")
        texts += reasons
    return Result(
        DebugOutput(
            ok=True,
            message="; ".join(texts) if failures else NOTHING_WRONG,
            not_exercised=tuple(unchecked_parts),
            components=tuple(checked),
            wrong=tuple(part.component for part in checked if part.checks.first_failure),
        ),
        idle=not checked,
    )


def check_components(
    context: Context, side: Side
) -> Generator[Tick, None, tuple[list[ComponentChecks], list[str]]]:
    """The checks of a variant's components, and sentences on those that could not be verified. A component without
    a signature of its own computes the whole result: it is left out after another one failed."""
    bench, seed, checked = context.bench, context.task.seed, list[ComponentChecks]()
    components = {name: part for name, part in bench.target.components.items() if side.name in part.variants}
    unchecked_parts = [] if components else [f"target.yaml names no components of {side.name}"]
    default_dtype = bench.target.dtypes["cuda" if side.emulated else bench.device]
    dtype = default_dtype if default_dtype in side.dtypes else side.dtypes[0]
    for name, component in components.items():
        if component.signature is None and any(part.checks.first_failure for part in checked):
            continue
        component_side = yield from _side_at_component(context, side, component)
        if isinstance(component_side, str):
            unchecked_parts.append(f"{name} of {side.name}: {component_side}")
            continue
        component_bench = bench.copy_for_component(component)
        workloads = expand_sets(component_bench.target, component_bench.target.workloads, dtype, seed)
        job = Job(component_side.copy_as(f"{side.name} {name}"), workloads, layouts=False)
        (checks,) = yield from verify(component_bench, [job])
        checked.append(ComponentChecks(component=name, variant=side.name, title=component.title, checks=checks))
    return checked, unchecked_parts


def _side_at_component(context: Context, side: Side, part: Component) -> Generator[Tick, None, Side | str]:
    """A side that calls a component's entry in the variant's library, built again if the component has flags of
    its own; or a sentence why it does not build."""
    if part.flags:
        bench, name = context.bench, side.name
        variant = (bench.emulated_variants if side.emulated else bench.compiled_variants)([name])[name]
        recipe = variant.build.model_copy(update={"flags": (*variant.build.flags, *part.flags)})
        built, failed = yield from compile_all(context, {name: variant.model_copy(update={"build": recipe})})
        if failed:
            return f"no build with {' '.join(part.flags)}: {failed[0].message}"
        side = bench.make_side(name, built[0], emulated=side.emulated)
    assert isinstance(side.terms, LibraryTerms)
    return side.copy_as(side.name, terms=side.terms.replace(entry=part.entry_in(side.name)))

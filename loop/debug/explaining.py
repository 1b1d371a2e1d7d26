"""Explain why a variant is wrong: threads, kept state, a known fault, or a rule on workloads."""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import cast

from loop.base.errors import WorkFailed
from loop.base.processes import Waiting
from loop.calls.call import LibraryTerms
from loop.debug.rules import Case, RuleSearch
from loop.gate.kernel import build_sides, usual_dtype
from loop.gate.verify import Job, SideChecker, WhichCalls, verify
from loop.machine.machine import cores
from loop.model import workloads
from loop.model.dtypes import Layout
from loop.model.measurement import Check, VariantChecks
from loop.model.output import (
    ChecksOutput,
    ComponentChecks,
    DebugOutput,
    Explanation,
    ProbeOutcome,
    Smallest,
    outputs_of,
)
from loop.model.target import Scalar, Signature, Workload
from loop.report.findings import describe_location
from loop.steps.context import Context, NoArguments, Result, RunningAction
from loop.workers.bench import KeptWorker, Side

HANG_S = 5.0  # Seconds after which a probe counts as hung; small workloads take milliseconds.
MOST_PROBES = 200  # Most workloads that one search tries.
MIN_ERRORS = 8  # Fewest wrong elements that show a pattern.
NOTHING_WRONG = "no variant failed a check: no cause to look for"
Fails = Callable[[Case], Waiting[bool]]  # Tries a case: whether the variant fails.


def failure_kind(check: Check) -> str:
    """The kind of a check's failure, as in `wrong`, `hung` or `refused: error 3`; empty if it
    passed. Failures of one kind count as one fault: a shape that the variant refuses is no smaller
    form of a wrong output. `inexact`: it failed although every element is within the tolerance."""
    if check.passed:
        return ""
    if check.status == "wrong":
        return "wrong" if check.wrong else "inexact"
    code = check.fault.code if check.fault else ""
    return ": ".join(filter(None, (check.status, code or check.cause)))


class BudgetSpent(Exception):
    """The budget of a search is used up."""


class FailureProber:
    """The most frequent kind of failure of a wrong variant. Asks the gate whether the variant fails
    alike on other workloads, and caches every answer."""

    def __init__(self, context: Context, side: Side, deadline: float) -> None:
        """`side`: its build failed a check in this session; `deadline`: on the monotonic clock."""
        self.bench, self.side, self.deadline = context.bench, side, deadline
        self.signature, build = context.bench.target.signature, (side.name, side.build_id)
        outputs = outputs_of(context.finished, ChecksOutput)
        parts = [part for output in outputs for part in output.variants]
        own_parts = [part for part in parts if (part.variant, part.build_id) == build]
        self.checks = [check for part in own_parts for check in part.checks]
        """All checks of the variant in this session, in the order of the verifications."""
        kinds = [failure_kind(check) for check in self.checks if not check.passed]
        self.kind = max(kinds, key=kinds.count)  # The kind of failure, by `failure_kind`.
        self.failures = [check for check in self.checks if failure_kind(check) == self.kind]
        """Checks that show this kind of failure, in the order in which they were made."""
        by_size = sorted(self.failures, key=lambda check: math.prod(check.workload.sizes.values()))
        self.start_check = min(by_size, key=lambda check: check.inputs != "contiguous")
        """The smallest check with this kind of failure, where a search begins."""
        self.clearest_check = min(
            self.failures,
            key=lambda check: (
                check.inputs != "contiguous",
                check.workload.values != "normal",
                check.wrong < MIN_ERRORS,
                abs(check.wrong / check.total - 0.5) if check.total else 0.5,
                -check.total,
            ),
        )
        """The check with the most even split of right and wrong elements: it shows the pattern."""
        self.seed = self.start_check.workload.base_seed  # Base seed of all probes.
        self.outcomes: dict[frozenset[tuple[str, Scalar]], ProbeOutcome] = {}  # By case and shift.
        self.probe_count = 0
        self._gate = SideChecker(Job(side, (), call_limit_s=HANG_S), KeptWorker(self.bench, side))

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up: no further probe may be made."""
        return self.probe_count >= MOST_PROBES or time.monotonic() > self.deadline

    def classify(self, check: Check) -> ProbeOutcome:
        """`fails`: the check shows this kind of failure; `other`: another kind; or `passes`."""
        kind = failure_kind(check)
        return "passes" if not kind else "fails" if kind == self.kind else "other"

    def begin_process(self, threads: int | None = None) -> None:
        """Make later calls in a new process with this many threads; None: as in verification."""
        self.close()
        side = replace(self.side, threads=threads) if threads else self.side
        self._gate = SideChecker(Job(side, (), call_limit_s=HANG_S), KeptWorker(self.bench, side))

    def close(self) -> None:
        """End the worker process; the next probe starts a fresh one."""
        self._gate.worker.close()

    def build_workload(self, case: Case, seed_shift: int = 0) -> Workload:
        """The workload of a case, with the failure's type, and its seed plus `seed_shift`."""
        entry = {name: value for name, value in case.items() if value != "none"}
        entry.pop("inputs", None)
        dtype, seed = self.start_check.workload.dtype, self.seed + seed_shift
        return workloads.make_workload(self.bench.target, entry, dtype, seed)

    def ask_gate(self, case: Case, seed_shift: int = 0) -> Waiting[ProbeOutcome]:
        """The gate's answer on a case, cached. Raises BudgetSpent if the budget is used up."""
        key = frozenset({**case, "shift": seed_shift}.items())
        if key not in self.outcomes:
            if self.is_spent:
                raise BudgetSpent
            self.outcomes[key] = self.classify((yield from self.check(case, seed_shift)))
        return self.outcomes[key]

    def check(self, case: Case, seed_shift: int = 0) -> Waiting[Check]:
        """Check a case now, without the cache or the budget. A size that the variant, the generator
        or the reference does not take gives a check with status `refused`."""
        workload = self.build_workload(case, seed_shift)
        layout = cast(Layout, case.get("inputs", "contiguous"))
        why = workloads.explain_unsupported(self.side, workload)
        self.probe_count += 1
        check = Check(workload=workload, inputs=layout, status="refused", message=why)
        if not why:
            try:
                yield from self.bench.prepare_answer(workload)
                check = yield from self._gate.make_check(workload, layout)
            except WorkFailed as failed:
                check = check.model_copy(update={"message": failed.message})
            yield from self.bench.discard_answer(workload)
        self.failures += [check] if self.classify(check) == "fails" else []
        return check

    def find_wrong_calls(self, check: Check, threads: int | None) -> Waiting[WhichCalls]:
        """Repeat a check in a new process (`threads`: see `begin_process`): which calls are wrong.
        `all`: no output, or wrong together. Raises BudgetSpent, also if a call hangs."""
        if self.is_spent:
            raise BudgetSpent
        self.begin_process(threads)
        try:
            repeat = yield from self._gate.make_check(check.workload, check.inputs)
        except WorkFailed:
            return "all"
        if repeat.status == "hung":
            raise BudgetSpent
        which = {calls.which for calls in self._gate.wrong_calls.values()} - {"none"}
        return "none" if repeat.passed else (*which, "all")[0]


def find_failures(context: Context) -> Waiting[list[FailureProber]]:
    """A prober for each variant that this session's last checks found wrong; none if a control
    failed. Raises LoopError if a source was edited after it was checked."""
    last_by_action = {record.action: record for record in context.finished if record.output}
    wrong: list[VariantChecks] = []
    for output in outputs_of(last_by_action.values(), ChecksOutput):
        if output.control is None or not output.control.first_failure:  # Else nothing is proved.
            wrong += [checks for checks in output.variants if checks.first_failure]
    side_by_name, _ = yield from build_sides(context, [checks.variant for checks in wrong])
    probers, share_s = [], context.budget_s / max(len(wrong), 1)
    for number, checks in enumerate(wrong, 1):
        side = side_by_name.get(checks.variant)
        if side is None or side.build_id != checks.build_id:
            problem = "was edited after it was checked" if side else "no longer compiles"
            raise WorkFailed(f"{checks.variant} {problem}", hint="run the session again")
        probers.append(FailureProber(context, side, time.monotonic() + number * share_s))
    return probers


def smallest(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Find the smallest workload on which the gate sees each wrong variant fail. Always passes."""
    answers, texts = list[Smallest](), list[str]()
    for prober in (yield from find_failures(context)):
        with closing(prober):
            answer = yield from _find_smallest(prober)
        answers.append(answer)
        ending = "no smaller one fails" if answer.minimal else "the budget ended the search"
        note = answer.note or f"{answer.probes} smaller tried, {ending}"
        texts.append(f"{prober.side.name} fails on {answer.check.workload.name} ({note})")
    message = "; ".join(texts) or NOTHING_WRONG
    return Result(DebugOutput(ok=True, message=message, smallest=tuple(answers)), idle=not answers)


def _find_smallest(prober: FailureProber) -> Waiting[Smallest]:
    """Shrink the failing workload, then confirm in a fresh process that the smallest one fails."""

    def fails(case: Case) -> Waiting[bool]:
        return not prober.is_spent and (yield from prober.ask_gate(case)) == "fails"

    start = prober.start_check
    layout = {} if start.inputs == "contiguous" else {"inputs": start.inputs}
    case: Case = {**workloads.make_entry(prober.signature, start.workload), **layout}
    case = yield from shrink(case, prober.signature, fails)
    is_minimal, probes, note = not prober.is_spent, prober.probe_count, ""
    prober.close()
    check = yield from prober.check(case)
    if prober.classify(check) != "fails":
        is_smaller, check = check.workload.name != start.workload.name, start
        failing = "smaller ones fail" if is_smaller else "it fails"
        note = f"{failing} at times, or only after other calls"
    entry = workloads.make_entry(prober.signature, check.workload)
    words = "" if note else workloads.format_entry(entry)
    fields = {"seed": prober.seed, "probes": probes, "minimal": is_minimal and not note}
    return Smallest(variant=prober.side.name, check=check, words=words, note=note, **fields)


def shrink(case: Case, signature: Signature, fails: Fails) -> Waiting[Case]:
    """Drop special values, layout and attributes, then lower each dimension; repeat until nothing
    changes. Dimensions that share a shorthand are first lowered together. Returns the last case for
    which `fails` returned True, else `case`; without shorthands."""
    shorthand = signature.shorthand  # Each stands for its dimensions.
    current: Case = {part: case[name] for name in case for part in shorthand.get(name, (name,))}
    previous: Case = {}
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
    return current


def _lower(case: Case, names: Iterable[str], fails: Fails) -> Waiting[Case]:
    """Lower dimensions to one common size, as far as the case still fails: doubled from 1, as small
    sizes are quick, then bisected. Returns the smallest case that failed, or `case`."""
    low, high, size = 0, max(int(case[name]) for name in names), 1
    while high - low > 1:
        smaller = {**case, **dict.fromkeys(names, size)}
        if (yield from fails(smaller)):
            case, high = smaller, size
        else:
            low = size
        size = 2 * low if 0 < 2 * low < high else (low + high) // 2
    return case


def components(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Verify each component of the wrong variants, to find the faulty one. Always passes."""
    checked, unchecked_parts = list[ComponentChecks](), list[str]()
    for prober in (yield from find_failures(context)):
        parts, reasons = yield from check_components(context, prober.side)
        checked += parts
        unchecked_parts += reasons
    texts = [f"{part.component} of {part.variant} {part.outcome}" for part in checked]
    message = "; ".join(texts + unchecked_parts) or NOTHING_WRONG
    fields = {"components": tuple(checked), "not_exercised": tuple(unchecked_parts)}
    wrong = tuple(part.component for part in checked if part.checks.first_failure)
    output = DebugOutput(ok=True, message=message, wrong=wrong, **fields)
    return Result(output, idle=not checked)


def check_components(
    context: Context, side: Side
) -> Waiting[tuple[list[ComponentChecks], list[str]]]:
    """The checks of a variant's components, and why others were not verified. One with flags is a
    build of its own. One without a signature computes all: it is left out after another failed."""
    bench, checked, dtype = context.bench, list[ComponentChecks](), usual_dtype(context.bench, side)
    named = bench.target.components.items()
    components = {name: part for name, part in named if side.name in part.variants}
    unchecked_parts = [] if components else [f"target.yaml names no components of {side.name}"]
    for name, component in components.items():
        if component.signature is None and any(part.checks.first_failure for part in checked):
            continue
        component_side = side
        if component.flags:
            sides, failed = yield from build_sides(context, [side.name], component.flags)
            if failed:
                reason = f"no build with {' '.join(component.flags)}: {failed[0].message}"
                unchecked_parts.append(f"{name} of {side.name}: {reason}")
                continue
            component_side = sides[side.name]
        assert isinstance(component_side.terms, LibraryTerms)
        terms = component_side.terms.replace(entry=component.entry.replace("{of}", side.name))
        component_bench = bench.copy_for_component(component)
        target = component_bench.target
        inputs = workloads.expand_sets(target, target.workloads, dtype, context.task.seed)
        component_side = replace(component_side, name=f"{side.name} {name}", terms=terms)
        job = Job(component_side, inputs, layouts=False)
        (checks,) = yield from verify(component_bench, [job])
        fields = {"variant": side.name, "title": component.title, "checks": checks}
        checked.append(ComponentChecks(component=name, **fields))
    return checked, unchecked_parts


REPEATS = 4  # Fresh processes that repeat the calls on all threads, to show a data race.
MAX_ELEMENTS = 1 << 20  # Most in an output to compare: each fault costs a float64 reference.
ENOUGH_ERRORS = 64  # Wrong elements that are enough to identify a known fault.
MAX_COMPARED = 2  # Workloads that a known fault has to explain: one alone may fit by chance.
MAX_NAMED = 3  # Most known faults in a message; if more explain only wrong elements: none.
MIN_OPERATIONS = 1 << 18  # Operations that a fresh workload may have in any case.
ZEROS_FAULT = "nothing were computed (zeros)"  # Goes before a zeroed input.
TEXT_BY_GATE_CAUSE = {  # By the gate's cause. Except for NaN, no known faults are tried then.
    "outside": "it reads or writes outside of its tensors",
    "not written": "some of its output is never written, or added to what stands there",
    "one output": "its output does not follow its input's values",
    "NaN": "some of its output is never written, or overflows on the way (NaN)",
}
TEXT_BY_CALL_CAUSE = {  # By verification's cause, which ends the search.
    "changed input": "it writes to its input",
    "first call": "wrong in the first call of a process, right in later ones",
    "later calls": "it keeps values between calls: right in the first call of a process only",
}
RACE = "a data race, or it depends on the number of threads: wrong with {} threads, right with 1"
AT_TIMES_ON_THREADS = "it fails at times with {} threads, not in fresh processes: maybe a data race"
AT_TIMES_AFTER_CALLS = "it fails at times, or only after other calls, but not in fresh processes"
AT_TIMES = "it fails at times: equal calls differ between processes: a data race, or unset memory"
REORDERED = "outputs differ with {} threads only: a race or reordered sums (`deterministic: false`)"


def explain(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Explain each wrong variant: its cause, or a rule on which workloads fail. Always passes."""
    explanations, texts = list[Explanation](), list[str]()
    for prober in (yield from find_failures(context)):
        with closing(prober):
            explanation = yield from _explain_failure(prober)
        explanations.append(explanation)
        text = "; ".join(f"{label.lower()}: {part}" for label, part in explanation.lines)
        text = text or "it gives no output, so its own message is all there is"
        texts.append(f"{explanation.variant}: {text}")
    message = "; ".join(texts) or NOTHING_WRONG
    output = DebugOutput(ok=True, message=message, explanations=tuple(explanations))
    return Result(output, idle=not explanations)


def _explain_failure(prober: FailureProber) -> Waiting[Explanation]:
    """Try explanations in order: calls, layout, threads, known faults, then a rule on workloads."""
    causes = {check.cause for check in prober.failures}
    gate_cause = next((text for cause, text in TEXT_BY_GATE_CAUSE.items() if cause in causes), "")
    cause = next((text for cause, text in TEXT_BY_CALL_CAUSE.items() if cause in causes), "")
    layouts = dict.fromkeys(check.inputs for check in prober.failures)
    clearest, where, faults, rule, predicted = prober.clearest_check, "", tuple[str, ...](), "", 0
    if not cause and "contiguous" not in layouts:
        cause = f"it ignores how inputs lie in memory: wrong on {', '.join(layouts)} ones alone"
    if "changed input" not in causes:
        cause = yield from _find_call_cause(prober, cause)
    if not cause:  # Else other elements are wrong in other calls or layouts.
        where = describe_location(clearest, prober.signature)
        if gate_cause in ("", TEXT_BY_GATE_CAUSE["NaN"]):  # Quick; a rule uses the time left.
            faults = yield from _match_known_faults(prober)
        rule, predicted = yield from _find_rule(prober)
        cause = f"as if {', or '.join(faults)}" if faults else gate_cause
    fields = {"where": where, "workload": clearest.workload.name, "rule": rule, "held": predicted}
    return Explanation(variant=prober.side.name, cause=cause, as_if=faults, **fields)


def _find_call_cause(prober: FailureProber, known_cause: str) -> Waiting[str]:
    """A sentence if threads or chance cause the failure; else `known_cause`, also without time.
    That is what verification says of calls or layouts, or empty. It may be wrong: threads that
    begin late in a first call hide a race there. On a CPU first calls run on one thread."""
    clearest = prober.clearest_check
    check = clearest if clearest.cause == "two outputs" else prober.start_check
    threads = check.threads or cores()
    has_threads = threads > 1 and prober.bench.device == "cpu" and not prober.side.emulated
    outcomes = set[WhichCalls]()
    try:
        for _ in range(REPEATS):
            outcomes.add((yield from prober.find_wrong_calls(check, 1 if has_threads else None)))
            if outcomes <= {"all", "none"}:  # No call differs from the others: nothing to repeat.
                break
        if len(outcomes) > 1 or "mixed" in outcomes:  # Chance decides, not the number of the call.
            return AT_TIMES
        (which,) = outcomes
        if which != "none":  # `all`: neither threads nor earlier calls matter.
            call_cause = {"first": "first call", "later": "later calls"}.get(which, "")
            return known_cause or TEXT_BY_CALL_CAUSE.get(call_cause, "")
        # Threads meet more often in a large workload.
        largest = max(prober.failures, key=lambda each: math.prod(each.workload.sizes.values()))
        for repeated in (check, largest) * (REPEATS if has_threads else 0):
            on_all = yield from prober.find_wrong_calls(repeated, threads)
            if on_all != "none" and (yield from prober.find_wrong_calls(repeated, 1)) == "none":
                return (REORDERED if check.cause == "two outputs" else RACE).format(threads)
    except BudgetSpent:
        return known_cause
    finally:
        prober.close()
    by_chance = AT_TIMES_ON_THREADS.format(threads) if has_threads else AT_TIMES_AFTER_CALLS
    return known_cause or by_chance


def _match_known_faults(prober: FailureProber) -> Waiting[tuple[str, ...]]:
    """Known faults, in words, that each explain the wrong outputs of all compared workloads; empty
    if none does, or without time. Faults that explain every element are preferred to those for
    wrong ones only, which count up to `MAX_NAMED`. Zeros exclude other faults that give zeros."""
    by_size = sorted(prober.failures, key=lambda check: (check.wrong < ENOUGH_ERRORS, check.total))
    contiguous = [each for each in (prober.clearest_check, *by_size) if each.inputs == "contiguous"]
    usable = [check for check in contiguous if check.wrong and check.total <= MAX_ELEMENTS]
    workload_by_name = {check.workload.name: check.workload for check in usable}
    if time.monotonic() > prober.deadline or not workload_by_name:
        return ()
    side = replace(prober.side, threads=1) if prober.bench.device == "cpu" else prober.side
    compared = tuple(workload_by_name.values())[:MAX_COMPARED]
    job = Job(side, compared, layouts=False, call_limit_s=HANG_S, suspected=True)
    (checks,) = yield from verify(prober.bench, [job])
    # For each workload: the faults that fit, and whether they explain every element.
    fits = [check.fits for check in checks.checks if check.fits is not None]
    if not fits:
        return ()
    common_faults = [fault for fault in fits[0] if all(fault in fit for fit in fits)]
    complete_faults = [fault for fault in common_faults if all(fit[fault] for fit in fits)]
    faults = complete_faults or common_faults
    faults = [ZEROS_FAULT] if ZEROS_FAULT in faults else faults
    if complete_faults:  # All of them give the same output: any of them tells where to look.
        return tuple(faults[:MAX_NAMED])
    if 0 < len(faults) <= MAX_NAMED:
        return (*faults[:-1], f"{faults[-1]}, where it is wrong")
    return ()


def _find_rule(prober: FailureProber) -> Waiting[tuple[str, int]]:
    """The rule that predicted enough fresh workloads, and how many; or ("", 0). What passes is
    tried again with other values: it may be right by chance. Starts from the session's checks.
    Sizes: up to twice the largest; work: four times the smallest failure's, or `MIN_OPERATIONS`."""
    target, side, is_quick = prober.bench.target, prober.side, not prober.side.emulated
    least_work = workloads.count_operations(target, prober.start_check.workload)
    most_work = max(4 * least_work, MIN_OPERATIONS)
    fails_by_case: dict[tuple[tuple[str, Scalar], ...], bool] = {}
    """All checked cases, smallest first, to whether they fail. `none`: no value of an attribute."""
    for check in sorted(prober.checks, key=lambda check: sum(check.workload.sizes.values())):
        outcome, workload = prober.classify(check), check.workload
        if check.status != "unsupported" and outcome != "other":
            pairs = workload.attributes.items()
            attributes = {name: "none" if value is None else value for name, value in pairs}
            kinds = {"dtype": workload.dtype, "values": workload.values, "inputs": check.inputs}
            key = tuple({**workload.sizes, **attributes, **kinds}.items())
            fails_by_case[key] = fails_by_case.get(key, False) or outcome == "fails"
    cases: list[tuple[Case, bool]] = [(dict(key), failed) for key, failed in fails_by_case.items()]
    dimensions = target.signature.dimensions
    sizes = {name: max(8, *(2 * int(case[name]) for case, _ in cases)) for name in dimensions}

    def may_try(case: Case) -> bool:
        workload = prober.build_workload(case)
        is_small = workloads.count_operations(target, workload) <= most_work
        return is_small and workloads.is_supported(side, workload)

    def fails(case: Case, seed_shifts: Sequence[int]) -> Waiting[bool | None]:
        """Whether a case fails with the values of any of these seeds; None: it fails otherwise."""
        for shift in seed_shifts:
            outcome = yield from prober.ask_gate(case, shift)
            if outcome != "passes" or not is_quick or case["inputs"] != "contiguous":
                break
        return None if outcome == "other" else outcome == "fails"

    if prober.bench.device == "cpu" and is_quick:
        prober.begin_process(threads=1)
    search = None
    with suppress(BudgetSpent):
        for number, (case, is_failure) in enumerate(cases):
            if is_quick and not is_failure and case["inputs"] == "contiguous":
                cases[number] = case, bool((yield from fails(case, (1,))))
        search = RuleSearch(cases, sizes, may_try, random.Random(prober.seed))
        while fresh_case := search.next_case():
            has_failed = yield from fails(fresh_case, (0, 1))
            if has_failed is not None:
                search.learn(fresh_case, fails=has_failed)
    rule = search.conclusion if search else None
    sentence = f"wrong where {rule.text}, right where {rule.opposite}" if rule else ""
    return (sentence, search.predicted) if search and rule else ("", 0)

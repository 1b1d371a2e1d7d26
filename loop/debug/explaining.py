"""Explain why a variant is wrong: threads, kept state, a known fault, or a rule on workloads."""

import math
import random
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from loop.base.processes import Waiting
from loop.debug.probing import HANG_S, NOTHING_WRONG, BudgetSpent, FailureProber, find_failures
from loop.debug.rules import Case, RuleSearch
from loop.gate.verify import Job, WhichCalls, verify
from loop.machine.machine import cores
from loop.model.output import DebugOutput, Explanation
from loop.model.target import Scalar
from loop.model.workloads import count_operations, is_supported
from loop.report.findings import describe_location
from loop.steps.context import Context, NoArguments, Result, RunningAction

REPEATS = 4  # Fresh processes that repeat the calls on all threads, to show a data race.
MAX_ELEMENTS = 1 << 20
"""Most elements of an output compared with known faults; each fault costs a float64 reference."""
ENOUGH_ERRORS = 64  # Wrong elements that are enough to identify a known fault.
MAX_COMPARED = 2
"""Workloads that a known fault has to explain, because one alone may fit by chance."""
MAX_NAMED = 3
"""Most known faults that a message names. If more explain only the wrong elements, none of them is named."""
MIN_OPERATIONS = 1 << 18  # Operations that a fresh workload may have in any case.
ZEROS_FAULT = "nothing were computed (zeros)"
"""Name of the fault that explains an all-zero output best, before a zeroed input."""
TEXT_BY_GATE_CAUSE = {
    "outside": "it reads or writes outside of its tensors",
    "not written": "some of its output is never written, or added to what stands there",
    "one output": "its output does not follow its input's values",
    "NaN": "some of its output is never written, or overflows on the way (NaN)",
}
"""Cause found by the gate to its explanation. Except for NaN, no known faults are tried then."""
TEXT_BY_CALL_CAUSE = {
    "changed input": "it writes to its input",
    "first call": "wrong in the first call of a process, right in later ones",
    "later calls": "it keeps values between calls: right in the first call of a process, wrong in later ones",
}
"""Cause found by verification that explains the failure; `loop` searches no further."""
RACE = "a data race, or it depends on the number of threads: wrong with {} threads, right with 1"
AT_TIMES_ON_THREADS = "it fails at times with {} threads, in fresh processes it was right: maybe a data race"
AT_TIMES_AFTER_CALLS = "it fails at times, or only after other calls: in fresh processes it was right"
AT_TIMES = "it fails at times: the same calls gave other results in another process: a data race, or unset memory"
REORDERED = (
    "two outputs with {} threads, one with 1: a data race, or sums in another order (`deterministic: false`)"
)


def explain(context: Context, arguments: NoArguments) -> RunningAction[DebugOutput]:
    """Explain each wrong variant: its cause, or a rule that predicts which fresh workloads fail.
    The step passes whatever it finds."""
    explanations: list[Explanation] = []
    for prober in (yield from find_failures(context)):
        with closing(prober):
            explanations.append((yield from _explain_failure(prober)))
    unknown = "it gives no output, so its own message is all there is"
    message = "; ".join(f"{each.variant}: {each.text or unknown}" for each in explanations) or NOTHING_WRONG
    return Result(DebugOutput(ok=True, message=message, explanations=tuple(explanations)), idle=not explanations)


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
    place = {"where": where, "workload": clearest.workload.name}
    return Explanation(variant=prober.side.name, cause=cause, as_if=faults, rule=rule, held=predicted, **place)


def _find_call_cause(prober: FailureProber, known_cause: str) -> Waiting[str]:
    """A sentence if threads or chance cause the failure; else `known_cause`, also without time. That is what
    verification says of calls or layouts, or empty. It may be wrong: threads that begin late in a first call hide
    a race there. On a CPU the first calls run on one thread, so threads cannot matter."""
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
        largest = max(prober.failures, key=lambda failure: math.prod(failure.workload.sizes.values()))
        for repeated in (check, largest) * (REPEATS if has_threads else 0):
            on_all = yield from prober.find_wrong_calls(repeated, threads)
            if on_all != "none" and (yield from prober.find_wrong_calls(repeated, 1)) == "none":
                return (REORDERED if check.cause == "two outputs" else RACE).format(threads)
    except BudgetSpent:
        return known_cause
    finally:
        prober.close()
    return known_cause or (AT_TIMES_ON_THREADS.format(threads) if has_threads else AT_TIMES_AFTER_CALLS)


def _match_known_faults(prober: FailureProber) -> Waiting[tuple[str, ...]]:
    """Known faults, in words, that each explain the wrong outputs of all compared workloads; empty if none does,
    or without time. Faults that explain every element are preferred to those that explain the wrong ones only,
    which count if they are at most `MAX_NAMED`. If an output of zeros explains it, other faults that give zeros do
    not."""
    by_size = sorted(prober.failures, key=lambda check: (check.wrong < ENOUGH_ERRORS, check.total))
    contiguous = (check for check in (prober.clearest_check, *by_size) if check.inputs == "contiguous")
    usable = [check for check in contiguous if check.wrong and check.total <= MAX_ELEMENTS]
    workload_by_name = {check.workload.name: check.workload for check in usable}
    if time.monotonic() > prober.deadline or not workload_by_name:
        return ()
    side = replace(prober.side, threads=1) if prober.bench.device == "cpu" else prober.side
    workloads = tuple(workload_by_name.values())[:MAX_COMPARED]
    job = Job(side, workloads, layouts=False, call_limit_s=HANG_S, suspected=True)
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
    return (*faults[:-1], f"{faults[-1]}, where it is wrong") if 0 < len(faults) <= MAX_NAMED else ()


def _find_rule(prober: FailureProber) -> Waiting[tuple[str, int]]:
    """The rule that predicted enough fresh workloads, and how many; ("", 0) without one. A workload that passes is
    tried again with other values, because it may be right by chance. The search starts from the session's checks.
    Sizes: up to twice the largest tried one. Work: up to four times that of the smallest failing check, or
    `MIN_OPERATIONS` if this is more."""
    target, side, is_quick = prober.bench.target, prober.side, not prober.side.emulated
    most_work = max(4 * count_operations(target, prober.start_check.workload), MIN_OPERATIONS)
    fails_by_case: dict[tuple[tuple[str, Scalar], ...], bool] = {}
    """All checked cases, smallest first, to whether they fail. Features: sizes, attributes (`none`: without a
    value), type, kind of values and layout."""
    for check in sorted(prober.checks, key=lambda check: sum(check.workload.sizes.values())):
        outcome, workload = prober.classify(check), check.workload
        if check.status != "unsupported" and outcome != "other":
            attributes = {name: "none" if value is None else value for name, value in workload.attributes.items()}
            kinds = {"dtype": workload.dtype, "values": workload.values, "inputs": check.inputs}
            key = tuple({**workload.sizes, **attributes, **kinds}.items())
            fails_by_case[key] = fails_by_case.get(key, False) or outcome == "fails"
    cases: list[tuple[Case, bool]] = [(dict(key), failed) for key, failed in fails_by_case.items()]
    sizes = {name: max(8, *(2 * int(case[name]) for case, _ in cases)) for name in target.signature.dimensions}

    def may_try(case: Case) -> bool:
        workload = prober.build_workload(case)
        return count_operations(target, workload) <= most_work and is_supported(side, workload)

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

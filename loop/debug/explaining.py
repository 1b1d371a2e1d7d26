"""Explain why a variant is wrong: threads, kept state, a known fault, or a rule on workloads."""

import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Annotated, cast

from pydantic import Field

from loop.base.processes import Tick
from loop.debug.probing import HANG_S, NOTHING_WRONG, FailureProber, SearchSpent, checks_of, failing_sides
from loop.debug.rules import SCALES, Case, RuleSearch
from loop.gate.verify import Job, verify
from loop.machine.machine import cores
from loop.model.base import Model
from loop.model.bisect import BisectOutput
from loop.model.debugging import DebugOutput, Explanation, Outcome, Smallest
from loop.model.dtypes import Layout
from loop.model.exported import Diagnosis
from loop.model.measurement import Check, Span, VariantChecks
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, SessionHead
from loop.model.signature import Signature
from loop.model.target import Scalar, Target
from loop.model.workloads import count_operations, is_supported, parse_scale, scaled_normal
from loop.steps.context import Context, Result, RunningAction

PROBES = 150
"""Most workloads that are tried in search of a rule."""
REPEATS = 4
"""Fresh processes that repeat the calls on all threads, to show a data race."""
LARGEST = 1 << 20
"""Most elements of an output compared with known faults; each fault costs a float64 reference."""
LEAST_TELLING, TELLING = 8, 64
"""Fewest wrong elements that identify a known fault, and a number that is enough."""
COMPARED = 2
"""Workloads that a known fault has to explain, because one alone may fit by chance."""
MOST_NAMED = 3
"""Most known faults that a message names. If more fit, the output identifies none of them."""
LEAST_WORK = 1 << 18
"""Operations that a fresh workload may have in any case."""
NOTHING = "nothing were computed (zeros)"
"""Name of the fault that explains an all-zero output best, before a zeroed input."""
GROWS = 2.0
"""An error grows along a dimension if it never falls and ends at least this many times as large."""
LEAST_PARTS = 3
INFINITE = 1e300
LEAST_SIZES = 2
"""Different sizes of a dimension needed to tell a fixed place from one that moves with the size."""
BLOCKS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Block sizes that are tried: the last, partial block may be wrong."""
BY_CAUSE = {
    "outside": "it reads or writes outside of its tensors",
    "not written": "some of its output is never written",
    "one output": "its output does not follow its input's values",
    "NaN": "some of its output is never written, or overflows on the way (NaN)",
}
"""Cause found by the gate to its explanation. Except for NaN, no known faults are tried then."""
KEEPS = "it keeps values between calls: "
FIRST = "wrong in the first call of a process, right in later ones"
BY_CALLS = {
    "changed input": "it writes to its input",
    "first call": FIRST,
    "later calls": f"{KEEPS}right in the first call of a process, wrong in later ones",
}
"""Cause found by verification that explains the failure; `loop` searches no further."""
RACE = "a data race, or it depends on the number of threads: wrong with {} threads, right with 1"
ORDER = "two outputs with {} threads, one with 1: a data race, or sums in another order (`deterministic: false`)"


class Patience(Model):
    """Arguments of the step that explains failures."""

    seconds: Annotated[float, Field(gt=0)] | None = None
    """Seconds of search for all variants together. Default: the step's budget."""


def explain(context: Context, arguments: Patience) -> RunningAction[DebugOutput]:
    """Explain each wrong variant: its cause, or a rule that predicts which fresh workloads fail."""
    explanations: list[Explanation] = []
    pairs = yield from failing_sides(context)
    for failing, side in pairs:
        limit_s = (arguments.seconds or context.budget_s) / len(pairs)
        if arguments.seconds and side.emulated:
            limit_s = 0.0  # An emulated call takes seconds: use only earlier checks.
        with closing(FailureProber(context, failing, side, PROBES, limit_s)) as prober:
            explanations.append((yield from _explanation(prober)))
    silent = "it gives no output, and no rule foresaw where"
    texts = [f"{explanation.variant}: {explanation.text or silent}" for explanation in explanations]
    message = "; ".join(texts) or NOTHING_WRONG
    return Result(DebugOutput(ok=True, message=message, explanations=tuple(explanations)))


def _explanation(prober: FailureProber) -> Generator[Tick, None, Explanation]:
    """Try explanations in order: calls, layout, threads, known faults, then a rule on workloads."""
    causes = {check.cause for check in prober.failures}
    by_gate = next((text for cause, text in BY_CAUSE.items() if cause in causes), "")
    cause = next((text for cause, text in BY_CALLS.items() if cause in causes), "")
    layouts = dict.fromkeys(check.inputs for check in prober.failures)
    rule, predicted, as_if = "", 0, tuple[str, ...]()
    if not cause and "contiguous" not in layouts:
        cause = f"it ignores how inputs lie in memory: wrong on {', '.join(layouts)} ones alone"
    cause = cause or (yield from _threads_or_state(prober))
    if not cause and by_gate in ("", BY_CAUSE["NaN"]):  # Quick; a rule uses the time left.
        as_if = yield from _known_faults(prober)
    if not cause:
        rule, predicted = yield from _rule(prober)
    telling = prober.failing.telling
    return Explanation(
        variant=prober.failing.variant,
        cause=cause or (f"as if {', or '.join(as_if)}" if as_if else by_gate),
        as_if=as_if,
        rule=rule,
        held=predicted,
        where=common_place(prober.failures, prober.signature) or whereabouts(telling, prober.signature),
        workload=telling.workload.name,
    )


def _threads_or_state(prober: FailureProber) -> Generator[Tick, None, str]:
    """A sentence if threads or earlier calls cause the failure; empty if not, or without time."""
    check = prober.failing.telling if prober.failing.telling.cause == "two outputs" else prober.start
    many = check.threads or cores()
    threaded = many > 1 and prober.bench.device == "cpu" and not prober.side.emulated
    try:
        prober.begin_process(threads=1 if threaded else None)
        first, later = yield from prober.calls(check.workload, check.inputs)
        if first != later:
            return KEEPS + "right in the first call of a process, wrong in the next" if first else FIRST
        if not first:
            return ""
        if (yield from prober.fails_after(check)):
            return KEEPS + "right in a fresh process, wrong after calls with other values or sizes"
        for _ in range(REPEATS if threaded else 0):
            prober.begin_process(threads=many)
            if not all((yield from prober.calls(check.workload, check.inputs))):
                return (ORDER if check.cause == "two outputs" else RACE).format(many)
    except SearchSpent:
        return ""
    finally:
        prober.close()
    return "it fails at times: in fresh processes it was right"


def _known_faults(prober: FailureProber) -> Generator[Tick, None, tuple[str, ...]]:
    """Known faults that each explain the wrong outputs of all compared workloads; empty if none does. A fault that
    explains every element comes before one that explains only the wrong elements."""
    wrong = [check for check in prober.failures if check.wrong and check.inputs == "contiguous"]
    wrong = [check for check in wrong if check.total <= LARGEST]
    # The smallest workload with enough wrong elements, and one where about half of the elements are wrong.
    wrong.sort(key=lambda check: (check.wrong < TELLING, check.total if check.wrong >= TELLING else -check.wrong))
    evenly = sorted(wrong, key=lambda check: (check.wrong < LEAST_TELLING, abs(check.wrong / check.total - 0.5)))
    chosen = {check.workload.name: check.workload for check in (*evenly[:1], *wrong)}
    if time.monotonic() > prober.end or not chosen:
        return ()
    side = replace(prober.side, threads=1) if prober.bench.device == "cpu" else prober.side
    workloads = tuple(chosen.values())[:COMPARED]
    job = Job(side, workloads, layouts=False, call_limit_s=HANG_S, suspected=True)
    (checks,) = yield from verify(prober.bench, [job])
    fits = [check.fits for check in checks.checks if check.fits is not None]
    for whole in (True, False):
        faults = [[as_if for as_if, all_of_it in fit.items() if all_of_it or not whole] for fit in fits]
        common = tuple(as_if for as_if in faults[0] if all(as_if in fit for fit in faults)) if faults else ()
        if NOTHING in common:  # All zeros: prefer this to other faults that give zeros.
            common = (NOTHING,)
        if len(common) > MOST_NAMED:
            common = ()
        if common:
            return common if whole else (*common[:-1], f"{common[-1]}, where it is wrong")
    return ()


def _rule(prober: FailureProber) -> Generator[Tick, None, tuple[str, int]]:
    """The rule that predicted enough fresh workloads, and how many; ("", 0) without one. A workload that passes is
    tried again with other values, because it may be right by chance."""

    def ask(case: Case, other: int = 0) -> Generator[Tick, None, Outcome]:
        entry = _entry(prober.bench.target, case)
        return (yield from prober.ask(entry, cast(Layout, case["inputs"]), other))

    quick = not prober.side.emulated
    if prober.bench.device == "cpu" and quick:
        prober.begin_process(threads=1)
    search = None
    with suppress(SearchSpent):
        tried = _tried(prober)
        for number, (case, failed) in enumerate(tried):
            if quick and not failed and case["inputs"] == "contiguous":
                tried[number] = case, (yield from ask(case, 1)) == "fails"
        search = _search(prober, tried)
        while fresh := search.next():
            result = yield from ask(fresh)
            if quick and result == "passes" and fresh["inputs"] == "contiguous":
                result = yield from ask(fresh, 1)
            if result != "other":
                search.learn(fresh, result == "fails")
    return (search.found.sentence, search.held) if search and search.found else ("", 0)


def _tried(prober: FailureProber) -> list[tuple[Case, bool]]:
    """All checked cases of the variant, smallest first, each with whether it fails."""
    target = prober.bench.target
    tried: dict[tuple[tuple[str, Scalar], ...], bool] = {}
    for check in checks_of(prober.context, prober.failing.variant):
        result = prober.failing.outcome(check)
        if check.status != "unsupported" and result != "other":
            key = tuple(_case(target, check).items())
            tried[key] = tried.get(key, False) or result == "fails"
    cases = [(dict(key), fails) for key, fails in tried.items()]
    return sorted(cases, key=lambda case: sum(int(case[0][name]) for name in target.signature.dimensions))


def _search(prober: FailureProber, cases: Sequence[tuple[Case, bool]]) -> RuleSearch:
    """A rule search that starts from these cases, within what the target and the variant accept."""
    target, side = prober.bench.target, prober.side
    checks = checks_of(prober.context, prober.failing.variant)
    work = [
        count_operations(target, prober.start.workload),
        *(count_operations(target, check.workload) for check in checks),
    ]
    sizes = {name: max(8, *(2 * int(case[name]) for case, _ in cases)) for name in target.signature.dimensions}
    words = {
        name: tuple(dict.fromkeys(case[name] for case, _ in cases)) for name in cases[0][0] if name not in sizes
    }
    words["scale"] = (1.0, *SCALES) if len(words["scale"]) > 1 else ()
    choices = {name: words for name, words in words.items() if len(words) > 1}
    most = min(max(4 * work[0], LEAST_WORK), 2 * max(work))

    def fits(case: Mapping[str, Scalar]) -> bool:
        workload = prober.workload(_entry(target, case))
        return count_operations(target, workload) <= most and is_supported(side, workload)

    return RuleSearch(cases, sizes, choices, fits, random.Random(prober.seed))


def _case(target: Target, check: Check) -> dict[str, Scalar]:
    """The features of a check that a rule may use, such as sizes, type and layout."""
    workload, scale = check.workload, parse_scale(check.workload.values)
    attributes = {name: "none" if value is None else value for name, value in workload.attributes.items()}
    kind = target.values.get(workload.values, {})
    if workload.values == "wide":
        scale = 4.0
    elif kind and all(fill.kind == "normal" and not fill.nan_along for fill in kind.values()):
        scale = max(fill.scale for fill in kind.values())
    plain = scale is not None or workload.values == "normal"
    values = "normal" if plain else workload.values
    return {
        **workload.sizes, **attributes,
        "dtype": workload.dtype, "values": values, "scale": scale or 1.0, "inputs": check.inputs,
    }  # fmt: skip


def _entry(target: Target, case: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A case as a workload entry of target.yaml."""
    known = (*target.signature.dimensions, *target.signature.attributes_and_parameters, "dtype", "values")
    entry = {name: case[name] for name in known if case[name] != "none"}
    if case["values"] == "normal" and case["scale"] != 1:
        entry["values"] = scaled_normal(float(case["scale"]))
    return entry


def whereabouts(check: Check, signature: Signature) -> str:
    """Where elements are wrong: `query rows 64 to 127 of 128, all heads`; empty without a map."""
    if not check.spans:
        return ""
    partly, everywhere, growing = list[str](), list[str](), list[str]()
    for name, span in check.spans.items():
        known = signature.words.get(name)
        if span.size <= 1:
            continue
        if span.count == span.size:
            everywhere.append(f"all {known}" if known else f"all of {name}")
        elif span.count == 1:
            alone = f"{known} {span.first} alone, of {span.size}"
            partly.append(alone if known else f"only at {name} = {span.first} of {span.size}")
        elif span.count == span.last - span.first + 1:
            partly.append(f"{known or name} {span.first} to {span.last} of {span.size}")
        else:
            whole = f"{span.size} {known}" if known else f"{span.size} of {name}"
            partly.append(f"{span.count} of {whole} between {span.first} and {span.last}")
    for name, parts in check.map.items():
        largest = [part.largest for part in parts if part.count]
        errors = [error for error in largest if error is not None and error < INFINITE]
        whole_map = len(errors) == len(largest) >= LEAST_PARTS  # A part without a finite error hides the trend.
        if whole_map and errors == sorted(errors) and errors[-1] >= GROWS * errors[0]:
            growing.append(f"the error grows along {name}, from {errors[0]:.2g} to {errors[-1]:.2g}")
    return "; ".join([", ".join([*partly, *everywhere]) or "its one element", *growing])


def common_place(checks: Sequence[Check], signature: Signature) -> str:
    """Which indices are wrong in all these checks, as in `the last W % 8 of W`; or empty."""
    texts: list[str] = []
    for name in checks[0].spans if checks else ():
        spans = [check.spans[name] for check in checks if name in check.spans and check.spans[name].size > 1]
        partial = [span for span in spans if span.count < span.size]
        if partial and len({span.size for span in spans}) >= LEAST_SIZES:
            words = signature.words.get(name, f"indices of {name}")
            if all(span.count == span.last - span.first + 1 for span in spans):
                texts += _stretch(name, words, spans)
            elif all(span.count == (span.last - span.first) // 2 + 1 for span in spans):
                texts.append(f"every other of {words}, from {min(span.first for span in spans)} on")
    return ", ".join(texts)


def _stretch(name: str, words: str, spans: Sequence[Span]) -> Iterator[str]:
    """The first sentence that fits consecutive wrong indices; or nothing."""
    begin, to_end = {span.first for span in spans}, all(span.last == span.size - 1 for span in spans)
    block = next((n for n in BLOCKS if all(span.first == span.size // n * n for span in spans)), 0)
    rules = {
        f"only the last of {words}": all(span.count == 1 for span in spans),
        f"{words} from {spans[0].first} on": len(begin) == 1,
        f"the last {name} % {block} of {words}: a partial block of {block}": block > 0,
        f"the second half of {words}": all(span.first == span.size // 2 for span in spans),
    }
    ends = {span.last for span in spans}
    if to_end:
        yield from [text for text, fits in rules.items() if fits][:1]
    elif len(begin) == len(ends) == 1:
        yield f"only the first of {words}" if ends == {0} else f"{words} {spans[0].first} to {spans[0].last}"


def diagnoses(head: SessionHead, finished: Sequence[Finished]) -> tuple[Diagnosis, ...]:
    """One diagnosis for each wrong variant of a session that some debugging step examined."""
    verified = (checks for output in outputs_of(finished, VerifyOutput) for checks in output.variants)
    wrong = {checks.variant: checks for checks in verified if checks.first_failure}
    shrunk = (smallest for output in outputs_of(finished, DebugOutput) for smallest in output.smallest)
    explained = (why for output in outputs_of(finished, DebugOutput) for why in output.explanations)
    smallest_of = {smallest.variant: smallest for smallest in shrunk}
    why_of = {why.variant: why for why in explained}
    every = []
    for variant, checks in wrong.items():
        small, why = smallest_of.get(variant), why_of.get(variant)
        lines = tuple(_lines(finished, checks, small, why))
        command = head.verify_command(variant, small.words, small.seed) if small else ""
        if command or why or any(label == "Component" for label, _ in lines):
            cause, rule = (why.cause, why.rule) if why else ("", "")
            every.append(Diagnosis(variant=variant, lines=lines, command=command, cause=cause, rule=rule))
    return tuple(every)


def _lines(
    finished: Sequence[Finished], checks: VariantChecks, small: Smallest | None, explanation: Explanation | None
) -> Iterator[tuple[str, str]]:
    """Lines of a diagnosis, each a label and a text, as in ("Commit", "1a2b3c4 (new tiling)")."""
    # Without an output, the message of the variant or its emulator is the fault.
    silent = [check for check in checks.checks if check.status in ("refused", "crashed", "hung")]
    if silent:
        yield "Fault", silent[0].message
    yield from explanation.lines if explanation else ()
    answers = (out.answer for out in outputs_of(finished, BisectOutput) if out.variant == checks.variant)
    for answer in filter(None, answers):
        for commit in answer.culprits:
            yield "Commit", f"{commit.short_commit} ({commit.subject})"
        if answer.range:
            yield (
                "Commit",
                "one of " + ", ".join(f"{commit.short_commit} ({commit.subject})" for commit in answer.range),
            )
    every = (part for output in outputs_of(finished, DebugOutput) for part in output.components)
    parts = [part for part in every if part.variant == checks.variant]
    wrong = [part for part in parts if part.checks.first_failure]
    for part in wrong:
        yield "Component", f"{part.component} ({part.title}) {part.outcome}"
    if sound := ", ".join(part.component for part in parts if part not in wrong):
        rest = "" if wrong else ", so the fault lies in how they are put together"
        yield "Component", f"right by itself: {sound}{rest}"
    if small is not None:
        yield "Smallest workload", small.check.workload.name + (f"; {small.note}" if small.note else "")

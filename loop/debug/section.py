"""What debugging came to, in a few lines a variant: cause, rule, place, fault, component, smallest workload."""

from collections.abc import Iterator, Sequence

from loop.model.bisect import BisectOutput
from loop.model.debugging import ComponentsOutput, ExplainOutput, Explanation, Smallest, SmallestOutput
from loop.model.exported import Diagnosis
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, SessionHead

SILENT = ("refused", "crashed", "hung")
"""What gives no output: the message is the variant's or its emulator's own word on the fault."""


def diagnoses(head: SessionHead, finished: Sequence[Finished]) -> tuple[Diagnosis, ...]:
    """One a variant that was found wrong and looked into."""
    verified = (checks for output in outputs_of(finished, VerifyOutput) for checks in output.variants)
    wrong = {checks.variant: checks for checks in verified if checks.first_failure}
    found = (_diagnosis(head, finished, checks) for checks in wrong.values())
    return tuple(one for one in found if one is not None)


def _diagnosis(head: SessionHead, finished: Sequence[Finished], checks: VariantChecks) -> Diagnosis | None:
    """What is wrong with a variant; None where nobody looked into it."""
    variant = checks.variant
    small = {one.variant: one for output in outputs_of(finished, SmallestOutput) for one in output.smallest}.get(
        variant
    )
    explained = (one for output in outputs_of(finished, ExplainOutput) for one in output.explanations)
    why = {one.variant: one for one in explained}.get(variant)
    lines = tuple(_lines(finished, checks, small, why))
    command = head.verify_command(variant, small.words, small.seed) if small else ""
    if not (command or why or any(label == "Component" for label, _ in lines)):
        return None
    cause, rule = (why.cause, why.rule) if why else ("", "")
    return Diagnosis(variant=variant, lines=lines, command=command, cause=cause, rule=rule)


def _lines(
    finished: Sequence[Finished], checks: VariantChecks, small: Smallest | None, explanation: Explanation | None
) -> Iterator[tuple[str, str]]:
    silent = [check for check in checks.checks if check.status in SILENT]
    if silent:
        yield "Fault", silent[0].message
    if explanation is not None:
        yield from (one for one in explanation.lines if explanation.cause or not silent or one[0] != "Cause")
    yield from _commits(finished, checks.variant)
    yield from _components(finished, checks.variant)
    if small is not None:
        yield "Smallest workload", small.check.workload.name + (f"; {small.note}" if small.note else "")


def _commits(finished: Sequence[Finished], variant: str) -> Iterator[tuple[str, str]]:
    answers = [one.answer for one in outputs_of(finished, BisectOutput) if one.variant == variant and one.answer]
    for answer in answers:
        for commit in answer.culprits:
            yield "Commit", f"{commit.short} ({commit.subject})"
        if answer.range:
            yield "Commit", f"one of {', '.join(f'{one.short} ({one.subject})' for one in answer.range)}"


def _components(finished: Sequence[Finished], variant: str) -> Iterator[tuple[str, str]]:
    every = (one for output in outputs_of(finished, ComponentsOutput) for one in output.components)
    parts = [one for one in every if one.variant == variant]
    wrong = [one for one in parts if one.checks.first_failure]
    held = ", ".join(one.component for one in parts if one not in wrong)
    for one in wrong:
        yield "Component", f"{one.component} ({one.title}) {one.outcome}"
    if held:
        rest = "" if wrong else ", so the fault lies in how they are put together"
        yield "Component", f"right by itself: {held}{rest}"

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
    every = (_diagnosis(head, finished, checks) for checks in wrong.values())
    return tuple(diagnosis for diagnosis in every if diagnosis is not None)


def _diagnosis(head: SessionHead, finished: Sequence[Finished], checks: VariantChecks) -> Diagnosis | None:
    variant = checks.variant
    small = {
        smallest.variant: smallest
        for output in outputs_of(finished, SmallestOutput)
        for smallest in output.smallest
    }.get(variant)
    explained = (
        explanation for output in outputs_of(finished, ExplainOutput) for explanation in output.explanations
    )
    why = {explanation.variant: explanation for explanation in explained}.get(variant)
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
        yield from (line for line in explanation.lines if explanation.cause or not silent or line[0] != "Cause")
    yield from _commits(finished, checks.variant)
    yield from _components(finished, checks.variant)
    if small is not None:
        yield "Smallest workload", small.check.workload.name + (f"; {small.note}" if small.note else "")


def _commits(finished: Sequence[Finished], variant: str) -> Iterator[tuple[str, str]]:
    answers = [
        output.answer
        for output in outputs_of(finished, BisectOutput)
        if output.variant == variant and output.answer
    ]
    for answer in answers:
        for commit in answer.culprits:
            yield "Commit", f"{commit.short} ({commit.subject})"
        if answer.range:
            yield "Commit", f"one of {', '.join(f'{commit.short} ({commit.subject})' for commit in answer.range)}"


def _components(finished: Sequence[Finished], variant: str) -> Iterator[tuple[str, str]]:
    every = (component for output in outputs_of(finished, ComponentsOutput) for component in output.components)
    parts = [component for component in every if component.variant == variant]
    wrong = [component for component in parts if component.checks.first_failure]
    held = ", ".join(component.component for component in parts if component not in wrong)
    for component in wrong:
        yield "Component", f"{component.component} ({component.title}) {component.outcome}"
    if held:
        rest = "" if wrong else ", so the fault lies in how they are put together"
        yield "Component", f"right by itself: {held}{rest}"

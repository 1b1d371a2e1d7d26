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
    shrunk = (smallest for output in outputs_of(finished, SmallestOutput) for smallest in output.smallest)
    explained = (why for output in outputs_of(finished, ExplainOutput) for why in output.explanations)
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
    """A label and a text each: fault, cause and rule, commits, components, smallest workload."""
    silent = [check for check in checks.checks if check.status in SILENT]
    if silent:
        yield "Fault", silent[0].message
    yield from explanation.lines if explanation else ()
    for output in outputs_of(finished, BisectOutput):
        if output.variant == checks.variant and output.answer:
            for commit in output.answer.culprits:
                yield "Commit", f"{commit.short} ({commit.subject})"
            if output.answer.range:
                commits = ", ".join(f"{commit.short} ({commit.subject})" for commit in output.answer.range)
                yield "Commit", f"one of {commits}"
    every = (part for output in outputs_of(finished, ComponentsOutput) for part in output.components)
    parts = [part for part in every if part.variant == checks.variant]
    wrong = [part for part in parts if part.checks.first_failure]
    for part in wrong:
        yield "Component", f"{part.component} ({part.title}) {part.outcome}"
    if sound := ", ".join(part.component for part in parts if part not in wrong):
        rest = "" if wrong else ", so the fault lies in how they are put together"
        yield "Component", f"right by itself: {sound}{rest}"
    if small is not None:
        yield "Smallest workload", small.check.workload.name + (f"; {small.note}" if small.note else "")

"""What a session found out about each wrong variant, for its report and its JSON."""

from collections.abc import Sequence

from loop.model.output import DebugOutput, Diagnosis, VerifyOutput, outputs_of
from loop.model.record import Finished, SessionHead
from loop.report.culprits import search_answers


def make_diagnoses(head: SessionHead, finished: Sequence[Finished]) -> tuple[Diagnosis, ...]:
    """One diagnosis for each wrong variant of a session that some debugging step examined. Its lines, in this
    order: fault, cause, rule, place, commits, components, smallest workload."""
    verified = [checks for output in outputs_of(finished, VerifyOutput) for checks in output.variants]
    debugged = list(outputs_of(finished, DebugOutput))
    smallest_by_variant = {each.variant: each for output in debugged for each in output.smallest}
    explanation_by_variant = {each.variant: each for output in debugged for each in output.explanations}
    diagnoses = []
    for variant, checks in {checks.variant: checks for checks in verified if checks.first_failure}.items():
        smallest, explanation = smallest_by_variant.get(variant), explanation_by_variant.get(variant)
        # Without an output, the message of the variant or its emulator is the fault.
        messages = [check.message for check in checks.checks if check.status in ("refused", "crashed", "hung")]
        lines = [("Fault", message) for message in messages[:1]]
        lines += explanation.lines if explanation else ()
        for answer in (answer for searched, answer in search_answers(finished) if searched == variant):
            lines += [("Commit", commit.name) for commit in answer.culprits]
            if answer.range:
                lines.append(("Commit", f"one of {', '.join(commit.name for commit in answer.range)}"))
        for output in debugged:
            parts = [part for part in output.components if part.variant == variant]
            wrong_parts = [part for part in parts if part.checks.first_failure]
            lines += [("Component", f"{part.component} ({part.title}) {part.outcome}") for part in wrong_parts]
            if right_names := ", ".join(part.component for part in parts if part not in wrong_parts):
                is_between = not wrong_parts and not output.not_exercised  # Every component was verified.
                conclusion = ", so the fault lies in how they are put together" if is_between else ""
                lines.append(("Component", f"right by itself: {right_names}{conclusion}"))
        if smallest is not None:
            note = f"; {smallest.note}" if smallest.note else ""
            lines.append(("Smallest workload", smallest.check.workload.name + note))
        command = head.verify_command(variant, smallest.words, smallest.seed) if smallest else ""
        if command or explanation or any(label == "Component" for label, _ in lines):
            facts = {"cause": explanation.cause, "rule": explanation.rule} if explanation else {}
            diagnoses.append(Diagnosis(variant=variant, lines=tuple(lines), command=command, **facts))
    return tuple(diagnoses)

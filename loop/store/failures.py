"""The failures in a session's records, by fingerprint: one a step, or one for each variant that was wrong."""

from collections.abc import Iterable, Iterator

from loop.base.processes import describe_exit
from loop.model.index import FailureSeen
from loop.model.measurement import Check, VariantChecks
from loop.model.output import CommandOutput, VerifyOutput, read_output
from loop.model.record import Finished
from loop.store.fingerprints import Fingerprint, fingerprint, normal, telling_line, tells

KEPT = 400
"""Characters of a message that the index keeps."""


def of_session(session: str, finished: Iterable[Finished]) -> tuple[FailureSeen, ...]:
    """The failures of a session, each fingerprint once a step: of all attempts, those before a fresh start too."""
    ended = list(finished)
    found: dict[tuple[str, str, str], FailureSeen] = {}
    for index, record in enumerate(ended):
        for one in of_step(record) if record.status == "failed" else ():
            gone = any(_gets_past(later, record, one) for later in ended[index + 1 :])
            found[(record.pattern, record.step, one.key)] = FailureSeen(
                signature=one.text,
                key=one.key,
                subject=one.subject,
                pattern=record.pattern,
                step=record.step,
                message=record.message[:KEPT],
                hint=(record.hint or "")[:KEPT],
                cured_by=session if gone else None,
            )
    return tuple(found.values())


def of_step(record: Finished) -> tuple[Fingerprint, ...]:
    """What failed in a step that failed."""
    checked = read_output(record, VerifyOutput)
    if checked:
        wrong = tuple(_wrong((checked.control, *checked.variants)))
        if wrong:
            return wrong
    if record.killed:
        return (Fingerprint(f"{record.action}: over its limit"),)
    command = read_output(record, CommandOutput)
    if command:
        return (_of_command(command) or fingerprint(record.message),)
    return (fingerprint(record.message),)


def _of_command(output: CommandOutput) -> Fingerprint | None:
    """The line that names the error; where none does, how it ended and the last thing it said. None at a gate."""
    how, line = describe_exit(output.code), telling_line(output.output)
    if tells(line):
        return Fingerprint(normal(line))
    return Fingerprint(f"{how}: {normal(line)}" if line else how) if output.code else None


def _wrong(checks: Iterable[VariantChecks | None]) -> Iterator[Fingerprint]:
    """A variant by the kind of its failure: how many elements, and by how much, differs from run to run."""
    for one in checks:
        failure = one.first_failure if one else None
        if one is not None and failure is not None:
            yield Fingerprint(f"{one.variant} {_kind(failure)}", one.variant)


def _kind(failure: Check) -> str:
    if failure.status == "wrong":
        return "wrong" if failure.wrong else "inexact"
    if failure.status == "tampered":
        return failure.status
    return f"{failure.status}: {normal(failure.fault.text if failure.fault else failure.message)}"


def _gets_past(later: Finished, record: Finished, failed: Fingerprint) -> bool:
    """Whether a later attempt no longer fails so; where others fail, a variant may be right by itself."""
    if (later.pattern, later.step) != (record.pattern, record.step):
        return False
    if later.status == "passed":
        return True
    subjects = {one.subject for one in of_step(later)} if later.status == "failed" else {""}
    return bool(failed.subject) and "" not in subjects and failed.subject not in subjects

"""How did a session end, and what did all its steps together find?"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loop.model.change import kept_runs, standing
from loop.model.output import Output, outputs_of, read_output
from loop.model.record import Finished, Status, latest_attempts
from loop.model.verdict import Verdict


@dataclass(frozen=True)
class Findings:
    """What the steps of a session led to. The last attempt of each step counts."""

    verdicts: tuple[Verdict, ...]
    not_exercised: tuple[str, ...]
    learned: tuple[str, ...]


def collect(finished: Iterable[Finished]) -> Findings:
    """Verdicts, gaps and lessons of all steps, each once, in order, of the target with its kept changes.

    A variant that is incorrect anywhere keeps no verdict on its speed.
    """
    finished = tuple(finished)
    found = outputs_of(finished, Output)
    return Findings(
        verdicts=_honest(list(_standing(finished))),
        not_exercised=tuple(dict.fromkeys(text for output in found for text in output.not_exercised)),
        learned=tuple(dict.fromkeys(text for output in found for text in output.learned)),
    )


def _standing(finished: Iterable[Finished]) -> Iterator[Verdict]:
    """Every verdict on what the session leaves behind: a kept change's replace those on what was there.

    What a change is against the build before it is said of the change: the known good is another build.
    """
    records = latest_attempts(finished)
    changes = kept_runs(records)
    found: list[Verdict] = []
    for record in standing(records):
        output = read_output(record, Output)
        new = output.verdicts if output else ()
        if record.run in changes:
            new = tuple(one for one in new if one.against != "known_good")
            mended = {one.variant for one in new if one.ratio is not None}
            found = [one for one in found if one.ratio is not None or one.variant not in mended]
        found += new
    return iter(found)


def _honest(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """One verdict a variant, workload and comparison, the last one; correctness before speed."""
    wrong = {one.variant for one in verdicts if one.verdict in ("incorrect", "invalid")}
    kept = [one for one in verdicts if one.ratio is None or one.variant not in wrong]
    return tuple({(one.variant, one.workload, one.against): one for one in kept}.values())


def session_status(finished: Iterable[Finished], verdicts: Sequence[Verdict]) -> tuple[Status, str]:
    """How the session ended and why, in one line: failed before aborted before paused before passed."""
    steps = latest_attempts(finished)
    for verdict in verdicts:
        if verdict.verdict in ("incorrect", "invalid"):
            return "failed", f"{verdict.variant} is {verdict.verdict}: {verdict.reason}"
        if verdict.verdict == "slower" and verdict.against == "known_good":
            beside = [one for one in verdicts if (one.variant, one.against) == (verdict.variant, "known_good")]
            slower = sum(one.verdict == "slower" for one in beside)
            where = f"{slower} of {len(beside)} workloads" if len(beside) > 1 else verdict.workload
            return "failed", f"{verdict.variant} is slower than the known good on {where}"
    return _step_status(steps)


def _step_status(steps: Sequence[Finished]) -> tuple[Status, str]:
    endings: tuple[Status, ...] = ("failed", "aborted", "paused")
    for status in endings:
        for record in steps:
            if record.status == status:
                return status, f"{record.pattern}/{record.step}: {record.message}"
    passed = sum(record.status == "passed" for record in steps)
    if passed:
        return "passed", "the one step that ran passed" if passed == 1 else f"all {passed} steps that ran passed"
    return ("skipped", "every step was skipped") if steps else ("aborted", "no step has ended")

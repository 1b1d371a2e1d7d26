"""Raw samples of a session, read back from its folder, and as rows of CSV."""

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError, WorkFailed
from loop.base.remarks import remark
from loop.model.change import BriefOutput
from loop.model.measurement import Segment
from loop.model.output import read_output
from loop.model.record import Finished, latest_attempts
from loop.report.plain import one_line
from loop.store.sessions import SAMPLES, SessionFolder

_SEGMENTS = TypeAdapter(list[Segment])
COLUMNS = {
    "session": "the session's id",
    "run": "number of the pattern's run in the session, from 1",
    "pattern": "name of the pattern",
    "step": "id of the step",
    "attempt": "which attempt at the step, from 1",
    "variant": "the side that was timed: `baseline`, a variant, `... again` or `... slowed by 5%`",
    "workload": "name of the workload",
    "round": "set of fresh processes, from 0: the replicate",
    "segment": "number of the segment within its step, in the order in which they were timed, from 0",
    "sample": "number of the sample within its segment, from 0",
    "calls": "calls that the sample is the mean of",
    "seconds": "seconds of one call",
    "sm_clock_mhz": "clock of the GPU's multiprocessors after the segment; empty where nobody tells",
    "power_w": "power draw of the board after the segment, likewise",
    "temperature_c": "temperature of the chip after the segment, likewise",
}
"""Names of the columns and what they hold."""
_FORMULA = ("=", "+", "-", "@", "\t")
"""What a spreadsheet takes for a formula at the beginning of a cell."""


def read_samples(folder: SessionFolder, finished: Sequence[Finished]) -> list[tuple[Finished, list[Segment]]]:
    """The samples of every step's last attempt. Raises WorkFailed where files are gone or damaged.

    A part of the samples would look like all of them.
    """
    sampled, missing = [], []
    for step in latest_attempts(finished):
        for name in (name for name in step.artifacts if name.startswith(f"{SAMPLES}/")):
            segments = _segments(folder, name)
            if segments is None:
                missing.append(name)
            else:
                sampled.append((step, segments))
    if missing:
        message = f"{folder.path}: cannot be read: {', '.join(missing)}"
        raise WorkFailed(message, hint="put the files back, or measure anew: loop run session")
    return sampled


def _segments(folder: SessionFolder, name: str) -> list[Segment] | None:
    """None for a file that is gone or damaged, or that is not in the session's own folder."""
    path = (folder.path / name).resolve()
    if not path.is_relative_to(folder.path.resolve()):
        return None
    try:
        stored = json.loads(sums.opened(path, sums.read_regular(path)))["segments"]
        return _SEGMENTS.validate_python(stored, strict=False)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ValidationError, LoopError):
        remark(f"left out: {path}: gone or damaged")
        return None


def say_damaged_patches(finished: Sequence[Finished]) -> None:
    """Name each patch of a session that is not the change that was judged: somebody may apply it."""
    for step in finished:
        output = read_output(step, BriefOutput)
        if output and output.patch and output.digest:
            with contextlib.suppress(OSError):
                if content_hash(sums.read_regular(Path(output.patch))) != output.digest:
                    remark(f"{output.patch}: damaged: it is not the change that was judged")


def as_csv(session: str, sampled: Iterable[tuple[Finished, Sequence[Segment]]]) -> str:
    """All samples as CSV (RFC 4180) under a line of names. A text that would be a formula gets a `'` before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for step, segments in sampled:
        head = [_text(session), step.run, _text(step.pattern), _text(step.step), step.attempt]
        for number, segment in enumerate(segments):
            place = [_text(segment.side), _text(segment.workload), segment.round, number]
            after = segment.sensors[1] if segment.sensors else None
            sensors = (after.sm_clock_mhz, after.power_w, after.temperature_c) if after else (None, None, None)
            cells = ["" if value is None else value for value in sensors]
            for sample, seconds in enumerate(segment.seconds):
                writer.writerow([*head, *place, sample, segment.calls, repr(seconds), *cells])
    return out.getvalue()


def _text(value: str) -> str:
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line

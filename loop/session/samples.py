"""Raw samples of a session, read back from its folder."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from loop.base.documents import content_hash, sums
from loop.base.errors import LoopError, WorkFailed
from loop.base.remarks import remark
from loop.model.change import BriefOutput
from loop.model.measurement import Segment
from loop.model.output import read_output
from loop.model.record import Finished, latest_attempts
from loop.report.exports import Sampled
from loop.store.sessions import SAMPLES, SessionFolder

_SEGMENTS = TypeAdapter(list[Segment])


@dataclass(frozen=True)
class Read:
    """What a session's sample files hold, and which of them could not be read."""

    sampled: tuple[Sampled, ...]
    missing: tuple[str, ...]


def read_samples(folder: SessionFolder, finished: Sequence[Finished]) -> Read:
    """The samples of every step's last attempt, in the order of the steps."""
    sampled, missing = [], []
    for step in latest_attempts(finished):
        for name in (name for name in step.artifacts if name.startswith(f"{SAMPLES}/")):
            segments = _segments(folder, name)
            if segments is None:
                missing.append(name)
            else:
                sampled.append(Sampled(step, tuple(segments)))
    return Read(tuple(sampled), tuple(missing))


def _segments(folder: SessionFolder, name: str) -> list[Segment] | None:
    """None for a file that is gone or damaged, which is said, or that is not in the session's own folder."""
    path = (folder.path / name).resolve()
    if not path.is_relative_to(folder.path.resolve()):
        return None
    try:
        return _SEGMENTS.validate_python(
            json.loads(sums.opened(path, sums.read_regular(path)))["segments"], strict=False
        )
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


def required(folder: SessionFolder, read: Read) -> tuple[Sampled, ...]:
    """The samples; LoopError where files are gone, for a part of them would look like all."""
    if read.missing:
        names = ", ".join(read.missing)
        raise WorkFailed(
            f"{folder.path}: cannot be read: {names}", hint="put the files back, or measure anew: loop run session"
        )
    return read.sampled

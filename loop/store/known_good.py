"""What each variant was when all gates last passed, and what its kernels took when that was last recorded."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.errors import LoopError
from loop.model.index import SessionRow
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, KnownGood, KnownResources, SessionHead, latest_attempts
from loop.model.resources import Taken
from loop.store.rows import RESOURCES
from loop.store.sessions import SessionFolder, before, every, left_out


def known_good(root: Path, head: SessionHead) -> dict[str, KnownGood]:
    """The last build of each variant with which a session passed, on the same target and kind of device.

    Its workloads may have been others: a known good is held against today's before it is compared.
    Sessions after `head` do not count, so that a resumed session keeps what it began with.
    """
    found: dict[str, KnownGood] = {}
    for folder in reversed(before(root, head.id)):
        try:
            for name, good in _passed(folder, head):
                found.setdefault(name, good)
        except LoopError as error:
            left_out(error)
    return found


def needed(root: Path) -> set[str]:
    """Sessions that the next one looks back on: the last of each target and device, and of their known good."""
    last: dict[str, SessionHead] = {}
    for folder in every(root):
        try:
            head = folder.head()
            last[repr(_ground(head))] = head
        except LoopError as error:
            left_out(error)
    good = {one.session for head in last.values() for one in known_good(root, head).values()}
    return good | {head.id for head in last.values()}


def known_resources(
    root: Path, head: SessionHead, rows: Sequence[SessionRow]
) -> dict[tuple[str, str], KnownResources]:
    """What the session's variants took, each on each kind of GPU, when the last session of `rows` recorded it.

    Only sessions at a commit and with the same release of nvcc count.
    """
    found: dict[tuple[str, str], KnownResources] = {}
    chosen = {*head.variants, *head.emulated}
    for row in reversed([row for row in rows if row.started is None or row.started < head.started]):
        new = {key for key in row.resources if key[0] in chosen and key not in found}
        if not new or row.commit is None or row.environment.cuda != head.machine.nvcc:
            continue
        try:
            for one in _taken(SessionFolder(root / row.id)):
                if (one.variant, one.device) in new:
                    found[one.variant, one.device] = KnownResources(session=row.id, taken=one)
        except LoopError as error:
            left_out(error)
    return found


def _taken(folder: SessionFolder) -> Iterator[Taken]:
    """What a session recorded, the last of each variant last."""
    outputs = [record.output for record in latest_attempts(folder.finished()) if record.action == RESOURCES]
    return (Taken.model_validate(one, strict=False) for output in outputs for one in output.get("taken", ()))


def _passed(folder: SessionFolder, head: SessionHead) -> Iterator[tuple[str, KnownGood]]:
    record = folder.record()
    if record is None or record.status != "passed" or _ground(folder.head()) != _ground(head):
        return
    revision = record.head.revision
    commit = None if revision.dirty else revision.commit
    for name, build_id in dict(_builds(folder.finished())).items():  # The last verification counts.
        yield name, KnownGood(session=folder.id, build_id=build_id, commit=commit, branch=revision.branch)


def _ground(head: SessionHead) -> tuple[object, ...]:
    return head.target, head.device, head.machine.gpus[:1] if head.device == "cuda" else (head.machine.processor,)


def _builds(finished: Sequence[Finished]) -> Iterator[tuple[str, str]]:
    checked = (checks for output in outputs_of(finished, VerifyOutput) for checks in output.variants)
    yield from ((c.variant, c.build_id) for c in checked if c.right and c.build_id)

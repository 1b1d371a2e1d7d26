"""What was tried before: every build that went through the gate, with what was thought and what came of it."""

from collections.abc import Iterator
from pathlib import Path

from loop.base.errors import LoopError
from loop.model.debugging import SmallestOutput, Try
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import SessionHead
from loop.store.sessions import SessionFolder, before, left_out


def tries(root: Path, head: SessionHead) -> tuple[Try, ...]:
    """Builds that earlier sessions of the same target and device held against the reference, oldest first.

    Sessions after `head` do not count, so that a resumed session sees what it saw when it began.
    """
    return tuple(one for folder in before(root, head.id) for one in _of(folder, head))


def _of(folder: SessionFolder, head: SessionHead) -> Iterator[Try]:
    """One a variant: the last verification counts. A damaged session is left out."""
    try:
        then, finished = folder.head(), folder.finished()
    except LoopError as error:
        left_out(error)
        return
    if (then.target, then.target_folder, then.device) != (head.target, head.target_folder, head.device):
        return
    checked = {c.variant: c for output in outputs_of(finished, VerifyOutput) for c in output.variants}
    small = {
        one.variant: one.check.workload.name
        for output in outputs_of(finished, SmallestOutput)
        for one in output.smallest
    }
    yield from (_try(folder.id, then, checks, small.get(checks.variant, "")) for checks in checked.values())


def _try(session: str, then: SessionHead, checks: VariantChecks, smallest: str) -> Try:
    failure = checks.first_failure
    return Try(
        session=session,
        variant=checks.variant,
        build_id=checks.build_id,
        ground=then.ground,
        hypothesis=then.hypothesis,
        right=checks.right,
        message=failure.message if failure else "",
        smallest=smallest,
    )

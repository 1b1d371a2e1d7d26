"""Sessions before another one, and the builds that they verified."""

from collections.abc import Callable, Iterator
from pathlib import Path

from loop.base.errors import LoopError, remark_once
from loop.model.debugging import DebugOutput, EarlierTry
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import Finished, SessionHead
from loop.store.sessions import SessionFolder, list_sessions

MAX_EARLIER = 50  # Most earlier sessions that are looked at.


def earlier_sessions(
    root: Path, head: SessionHead, key_of: Callable[[SessionHead], object]
) -> Iterator[tuple[SessionFolder, SessionHead, tuple[Finished, ...]]]:
    """Sessions before `head` for which `key_of` gives the same, oldest first, with their heads and steps. Later
    ones do not count: a resumed session then sees the same past. Damaged ones are skipped, with a remark."""
    key, folders = key_of(head), list_sessions(root)
    ids = [folder.id for folder in folders]
    for folder in folders[: ids.index(head.id) if head.id in ids else None][-MAX_EARLIER:]:
        try:
            earlier_head = folder.head()
            if key_of(earlier_head) == key:
                yield folder, earlier_head, folder.finished()
        except LoopError as error:
            remark_once(f"left out: {error.message}")


def verified_builds(root: Path, head: SessionHead) -> tuple[EarlierTry, ...]:
    """Builds that earlier sessions of the same target and device verified, oldest first.
    One entry per session and variant, from the variant's last verification."""
    attempts = []
    target_sessions = earlier_sessions(root, head, lambda other: (other.target, other.target_folder, other.device))
    for folder, earlier_head, steps in target_sessions:
        smallest: dict[str, str] = {}  # Variant to the smallest workload on which it fails.
        for debugged in outputs_of(steps, DebugOutput):
            smallest |= {case.variant: case.check.workload.name for case in debugged.smallest}
        last_checks: dict[str, VariantChecks] = {}
        for verified in outputs_of(steps, VerifyOutput):
            last_checks |= {checks.variant: checks for checks in verified.variants}
        for variant, checks in last_checks.items():
            failure = checks.first_failure
            attempt = EarlierTry(
                session=folder.id,
                variant=variant,
                build_id=checks.build_id,
                ground=earlier_head.ground,
                hypothesis=earlier_head.hypothesis,
                right=checks.is_right,
                message=failure.message if failure else "",
                smallest=smallest.get(variant, ""),
            )
            attempts.append(attempt)
    return tuple(attempts)

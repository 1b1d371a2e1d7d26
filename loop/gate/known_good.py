"""Known-good builds: of each variant the last one with which a session passed on such a device."""

from pathlib import Path

from loop.base.errors import LoopError, remark_once
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import KnownGood, SessionHead
from loop.store import index
from loop.store.earlier import earlier_sessions
from loop.store.judgements import wrong_builds


def known_good(root: Path, head: SessionHead) -> dict[str, KnownGood]:
    """Variant to its known-good build: the last one with which a session passed on such a device.
    Excludes builds that any check of any session found wrong. That session may have used other
    workloads, so callers verify a known-good build on the current workloads before timing it."""
    known_good_builds: dict[str, KnownGood] = {}
    wrong_build_keys = wrong_builds(index.rows(root, target=head.target))
    for folder, _, steps in earlier_sessions(root, head, hardware_key):
        try:
            record = folder.record()
        except LoopError as error:
            remark_once(f"left out: {error.message}")
            continue
        if record is None or record.status != "passed":
            continue
        revision = record.head.revision
        session = {
            "session": folder.id,
            "commit": None if revision.dirty else revision.commit,
            "branch": revision.branch,
        }
        for output in outputs_of(steps, VerifyOutput):
            for checks in output.variants:
                build_id, key = checks.build_id, (checks.variant, checks.build_id, "")  # As in `wrong_builds`.
                if checks.is_right and build_id and key not in wrong_build_keys:
                    known_good_builds[checks.variant] = KnownGood(build_id=build_id, **session)
    return known_good_builds


def hardware_key(head: SessionHead) -> tuple[object, ...]:
    """Target, kind of device, and the GPU or processor: a known-good build holds for an equal key."""
    device = head.machine.gpus[:1] if head.device == "cuda" else (head.machine.processor,)
    return head.target, head.device, device

"""Known-good builds: of each variant the last one with which a session passed on such a device."""

from pathlib import Path

from loop.base.errors import LoopError, remark_once
from loop.model.output import VerifyOutput, outputs_of
from loop.model.record import KnownGood, SessionHead
from loop.store import index
from loop.store.rows import wrong_builds
from loop.store.sessions import earlier_sessions


def known_good(root: Path, head: SessionHead) -> dict[str, KnownGood]:
    """Variant to its known-good build: the last one with which a session passed on such a device, without builds
    that any session found wrong. `root`: the folder of sessions. `head`: the present session. The earlier session
    may have used other workloads, so callers verify the build again before timing it."""
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
        for output in outputs_of(steps, VerifyOutput):
            for checks in output.variants:
                is_wrong = (checks.variant, checks.build_id, "") in wrong_build_keys
                if checks.is_right and checks.build_id and not is_wrong:
                    known_good_builds[checks.variant] = KnownGood(
                        build_id=checks.build_id,
                        session=folder.id,
                        commit=None if revision.dirty else revision.commit,
                        branch=revision.branch,
                    )
    return known_good_builds


def hardware_key(head: SessionHead) -> tuple[object, ...]:
    """Target, kind of device, and the GPU or processor: a known-good build holds for an equal key."""
    processor = head.machine.gpus[:1] if head.device == "cuda" else (head.machine.processor,)
    return head.target, head.device, processor

"""Results of earlier sessions: known-good builds, builds tried, reverted changes and past searches."""

from collections.abc import Callable, Iterator
from pathlib import Path

from loop.base.errors import LoopError, remark_once
from loop.model.change import BriefOutput, DecisionOutput, PastSearch, TriedChange
from loop.model.debugging import DebugOutput, EarlierTry
from loop.model.output import VerifyOutput, outputs_by_run, outputs_of
from loop.model.record import Finished, KnownGood, SessionHead
from loop.store import index
from loop.store.judgements import wrong_builds
from loop.store.sessions import SessionFolder, list_sessions

MAX_EARLIER = 50
"""Most earlier sessions that are looked at."""


def _earlier_sessions(
    root: Path, head: SessionHead, key_of: Callable[[SessionHead], object]
) -> Iterator[tuple[SessionFolder, SessionHead, tuple[Finished, ...]]]:
    """Sessions before `head` for which `key_of` gives the same, oldest first, with their heads and steps.
    Skips damaged sessions. Later sessions do not count: a resumed session then sees the same past."""
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

    def key_of(other: SessionHead) -> object:
        return other.target, other.target_folder, other.device

    for folder, earlier_head, steps in _earlier_sessions(root, head, key_of):
        cases = (case for output in outputs_of(steps, DebugOutput) for case in output.smallest)
        smallest = {case.variant: case.check.workload.name for case in cases}
        verified = (checks for output in outputs_of(steps, VerifyOutput) for checks in output.variants)
        for variant, checks in {checks.variant: checks for checks in verified}.items():
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


def known_good(root: Path, head: SessionHead) -> dict[str, KnownGood]:
    """Variant to its known-good build: the last one with which a session passed on such a device.
    Excludes builds that any check of any session found wrong. That session may have used other
    workloads, so callers verify a known-good build on the current workloads before timing it."""
    known_good_builds: dict[str, KnownGood] = {}
    wrong_build_keys = wrong_builds(index.rows(root, target=head.target))
    for folder, _, steps in _earlier_sessions(root, head, hardware_key):
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


def toolchain_key(head: SessionHead) -> tuple[object, ...]:
    """Key of target, device and toolchain. A change reverted under an equal key would lose again."""
    machine, is_gpu = head.machine, head.device == "cuda"
    hardware = (machine.gpus[:1], machine.driver, machine.nvcc) if is_gpu else (machine.processor,)
    return head.target, head.target_folder, head.device, head.threads, hardware, machine.compiler


def reverted_changes(root: Path, head: SessionHead) -> tuple[TriedChange, ...]:
    """Changes that earlier sessions with this toolchain reverted. A repeated patch appears once."""
    reverted: dict[str, TriedChange] = {}
    for folder, _, steps in _earlier_sessions(root, head, toolchain_key):
        digest_by_run = {run: brief.digest for run, brief in outputs_by_run(steps, BriefOutput)}
        for run, decision in outputs_by_run(steps, DecisionOutput):
            tried, digest = decision.tried, digest_by_run.get(run, "")
            if tried is not None and tried.outcome == "reverted":
                change = tried.model_copy(update={"session": folder.id, "digest": digest})
                reverted[digest or f"{folder.id} {tried.patch}"] = change
    return tuple(reverted.values())


def tuning_searches(root: Path, head: SessionHead) -> tuple[PastSearch, ...]:
    """Tuning searches of earlier sessions with this toolchain, oldest first."""
    searches = []
    for folder, _, steps in _earlier_sessions(root, head, toolchain_key):
        revert_reason_by_run = dict[int, str]()
        for run, decision in outputs_by_run(steps, DecisionOutput):
            if decision.tried is not None and decision.tried.outcome == "reverted":
                revert_reason_by_run[run] = decision.tried.reason
        for run, output in outputs_by_run(steps, BriefOutput):
            if output.trials:
                fields = {"ground": output.ground, "trials": output.trials}
                searches.append(
                    PastSearch(session=folder.id, taken_back=revert_reason_by_run.get(run, ""), **fields)
                )
    return tuple(searches)

"""Results of earlier sessions: known-good builds, builds tried, reverted changes and past searches."""

from collections.abc import Callable, Iterator
from pathlib import Path

from loop.base.errors import LoopError
from loop.model.change import BriefOutput, DecisionOutput, PastSearch, TriedChange
from loop.model.debugging import DebugOutput, EarlierTry
from loop.model.output import VerifyOutput, outputs_by_run, outputs_of
from loop.model.record import Finished, KnownGood, SessionHead
from loop.store import index
from loop.store.judgements import standing_in, wrong_builds
from loop.store.sessions import SessionFolder, every_session, left_out, sessions_before


def _earlier(
    root: Path, head: SessionHead, alike: Callable[[SessionHead], object]
) -> Iterator[tuple[SessionFolder, SessionHead, tuple[Finished, ...]]]:
    """Sessions before `head` with an equal `alike(head)`, oldest first, with their heads and steps.

    Skips damaged sessions. Later sessions do not count: a resumed session then sees the same past.
    """
    own = alike(head)
    for folder in sessions_before(root, head.id):
        try:
            then = folder.head()
            if alike(then) == own:
                yield folder, then, folder.finished()
        except LoopError as error:
            left_out(error)


def earlier_tries(root: Path, head: SessionHead) -> tuple[EarlierTry, ...]:
    """Builds that earlier sessions of the same target and device verified, oldest first.

    One entry per session and variant, from the variant's last verification.
    """
    attempts = []
    for folder, then, steps in _earlier(root, head, lambda h: (h.target, h.target_folder, h.device)):
        cases = (case for output in outputs_of(steps, DebugOutput) for case in output.smallest)
        smallest = {case.variant: case.check.workload.name for case in cases}
        verified = (checks for output in outputs_of(steps, VerifyOutput) for checks in output.variants)
        for variant, checks in {checks.variant: checks for checks in verified}.items():
            failure = checks.first_failure
            attempt = EarlierTry(
                session=folder.id,
                variant=variant,
                build_id=checks.build_id,
                ground=then.ground,
                hypothesis=then.hypothesis,
                right=checks.is_right,
                message=failure.message if failure else "",
                smallest=smallest.get(variant, ""),
            )
            attempts.append(attempt)
    return tuple(attempts)


def known_good(root: Path, head: SessionHead) -> dict[str, KnownGood]:
    """Variant to its known-good build: the last one with which a session passed on such a device.

    Excludes builds that any check of any session found wrong. That session may have used other
    workloads, so callers verify a known-good build on the current workloads before timing it.
    """
    good: dict[str, KnownGood] = {}
    bad = wrong_builds(index.rows(root, target=head.target))
    for folder, _, steps in _earlier(root, head, _ground):
        try:
            record = folder.record()
        except LoopError as error:
            left_out(error)
            continue
        if record is None or record.status != "passed":
            continue
        revision = record.head.revision
        for checks in (checks for output in outputs_of(steps, VerifyOutput) for checks in output.variants):
            if checks.is_right and checks.build_id and (checks.variant, checks.build_id, "") not in bad:
                fields = {"session": folder.id, "commit": revision.clean_commit, "branch": revision.branch}
                good[checks.variant] = KnownGood(build_id=checks.build_id, **fields)
    return good


def _ground(head: SessionHead) -> tuple[object, ...]:
    """Target, kind of device, and the GPU or processor: a known-good build holds for an equal key."""
    device = head.machine.gpus[:1] if head.device == "cuda" else (head.machine.processor,)
    return head.target, head.device, device


def sessions_needed(root: Path) -> set[str]:
    """Ids of the earlier sessions that the next session reads, so that they are sent along to a host.

    These are the last session of each target and device, the sessions of their known-good builds,
    and sessions with an unresolved failure."""
    last: dict[str, SessionHead] = {}
    for folder in every_session(root):
        try:
            head = folder.head()
            last[repr(_ground(head))] = head
        except LoopError as error:
            left_out(error)
    sessions = {head.id for head in last.values()}
    for head in last.values():
        sessions |= {good.session for good in known_good(root, head).values()}
    for target in {head.target for head in last.values()}:
        sessions |= standing_in(index.rows(root, target=target))
    return sessions


def toolchain_of(head: SessionHead) -> tuple[object, ...]:
    """Key of target, device and toolchain. A change reverted under an equal key would lose again."""
    machine, gpu = head.machine, head.device == "cuda"
    place = (machine.gpus[:1], machine.driver, machine.nvcc) if gpu else (machine.processor,)
    return head.target, head.target_folder, head.device, head.threads, place, machine.compiler


def lost_ideas(root: Path, head: SessionHead) -> tuple[TriedChange, ...]:
    """Changes that earlier sessions with this toolchain reverted. A repeated patch appears once."""
    ideas: dict[str, TriedChange] = {}
    for folder, _, steps in _earlier(root, head, toolchain_of):
        digests = {run: brief.digest for run, brief in outputs_by_run(steps, BriefOutput)}
        for run, decision in outputs_by_run(steps, DecisionOutput):
            tried, digest = decision.tried, digests.get(run, "")
            if tried is not None and tried.outcome == "reverted":
                change = tried.model_copy(update={"session": folder.id, "digest": digest})
                ideas[digest or f"{folder.id} {tried.patch}"] = change
    return tuple(ideas.values())


def past_searches(root: Path, head: SessionHead) -> tuple[PastSearch, ...]:
    """Tuning searches of earlier sessions with this toolchain, oldest first."""
    past = []
    for folder, _, steps in _earlier(root, head, toolchain_of):
        tried = {run: decision.tried for run, decision in outputs_by_run(steps, DecisionOutput)}
        back = {run: change.reason for run, change in tried.items() if change and change.outcome == "reverted"}
        for run, output in outputs_by_run(steps, BriefOutput):
            if output.trials:
                fields = {"ground": output.ground, "trials": output.trials}
                past.append(PastSearch(session=folder.id, taken_back=back.get(run, ""), **fields))
    return tuple(past)

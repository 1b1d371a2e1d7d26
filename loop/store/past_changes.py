"""What earlier sessions built, tried and took back: known-good builds, tries, changes and searches that lost."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.errors import LoopError
from loop.model.change import BriefOutput, DecisionOutput, LostIdea, PastSearch, TuneOutput
from loop.model.debugging import EarlierTry, SmallestOutput
from loop.model.index import SessionRow
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput, by_run, outputs_of
from loop.model.record import Finished, KnownGood, KnownResources, SessionHead, latest_attempts
from loop.model.resources import ResourcesTaken
from loop.store import index
from loop.store.judgements import standing_in, wrong_builds
from loop.store.rows import RESOURCES
from loop.store.sessions import RECENT, SessionFolder, before, every, left_out


def tries(root: Path, head: SessionHead) -> tuple[EarlierTry, ...]:
    """Builds that earlier sessions of the same target and device held against the reference, oldest first.

    Sessions after `head` do not count, so that a resumed session sees what it saw when it began.
    """
    return tuple(attempt for folder in before(root, head.id) for attempt in _tries_in(folder, head))


def _tries_in(folder: SessionFolder, head: SessionHead) -> Iterator[EarlierTry]:
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
        case.variant: case.check.workload.name
        for output in outputs_of(finished, SmallestOutput)
        for case in output.smallest
    }
    yield from (_try(folder.id, then, checks, small.get(checks.variant, "")) for checks in checked.values())


def _try(session: str, then: SessionHead, checks: VariantChecks, smallest: str) -> EarlierTry:
    failure = checks.first_failure
    return EarlierTry(
        session=session,
        variant=checks.variant,
        build_id=checks.build_id,
        ground=then.ground,
        hypothesis=then.hypothesis,
        right=checks.right,
        message=failure.message if failure else "",
        smallest=smallest,
    )


def known_good(root: Path, head: SessionHead) -> dict[str, KnownGood]:
    """The last build of each variant with which a session passed, on the same target and kind of device.

    A build that any check of any session found wrong is none. Its workloads may have been others: a known good is
    held against today's before it is compared.
    Sessions after `head` do not count, so that a resumed session keeps what it began with.
    """
    found: dict[str, KnownGood] = {}
    bad = wrong_builds(index.rows(root, target=head.target))
    for folder in reversed(before(root, head.id)):
        try:
            for name, good in _passed(folder, head):
                if (name, good.build_id, "") not in bad:
                    found.setdefault(name, good)
        except LoopError as error:
            left_out(error)
    return found


def needed(root: Path) -> set[str]:
    """Sessions that the next one looks back on.

    The last of each target and device, that of their known good, and those with a failure that still stands.
    """
    last: dict[str, SessionHead] = {}
    for folder in every(root):
        try:
            head = folder.head()
            last[repr(_ground(head))] = head
        except LoopError as error:
            left_out(error)
    good = {good.session for head in last.values() for good in known_good(root, head).values()}
    targets = {head.target for head in last.values()}
    wrong = {session for target in targets for session in standing_in(index.rows(root, target=target))}
    return good | wrong | {head.id for head in last.values()}


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
            steps = latest_attempts(SessionFolder(root / row.id).finished())
            outputs = [step.output for step in steps if step.action == RESOURCES]
            for taken in (taken for output in outputs for taken in output.get("taken", ())):
                resources = ResourcesTaken.model_validate(taken, strict=False)
                if (resources.variant, resources.device) in new:
                    found[resources.variant, resources.device] = KnownResources(session=row.id, taken=resources)
        except LoopError as error:
            left_out(error)
    return found


def _passed(folder: SessionFolder, head: SessionHead) -> Iterator[tuple[str, KnownGood]]:
    record = folder.record()
    if record is None or record.status != "passed" or _ground(folder.head()) != _ground(head):
        return
    revision = record.head.revision
    commit = None if revision.dirty else revision.commit
    outputs = outputs_of(folder.finished(), VerifyOutput)
    checked = [checks for output in outputs for checks in output.variants if checks.right and checks.build_id]
    for name, build_id in {checks.variant: checks.build_id for checks in checked}.items():  # The last one counts.
        yield name, KnownGood(session=folder.id, build_id=build_id or "", commit=commit, branch=revision.branch)


def _ground(head: SessionHead) -> tuple[object, ...]:
    return head.target, head.device, head.machine.gpus[:1] if head.device == "cuda" else (head.machine.processor,)


def lost_ideas(root: Path, head: SessionHead) -> tuple[LostIdea, ...]:
    """Changes that earlier sessions took back, oldest first; each change once, as it was judged last."""
    ideas = [idea for session, finished in _before(root, head) for idea in _ideas(session, finished)]
    return tuple({one.digest or f"{one.session} {one.patch}": one for one in ideas}.values())


def searches(root: Path, head: SessionHead) -> tuple[PastSearch, ...]:
    """Searches of earlier sessions, oldest first."""
    return tuple(search for session, finished in _before(root, head) for search in _searches(session, finished))


def environment(head: SessionHead) -> tuple[object, ...]:
    """What has to be the same for a change to lose again: target, device and toolchain."""
    machine, gpu = head.machine, head.device == "cuda"
    place = (machine.gpus[:1], machine.driver, machine.nvcc) if gpu else (machine.processor,)
    return head.target, head.target_folder, head.device, head.threads, place, machine.compiler


def _before(root: Path, head: SessionHead) -> Iterator[tuple[str, tuple[Finished, ...]]]:
    """Sessions before `head` in its environment, oldest first. A damaged one is left out."""
    folders = [folder for folder in every(root) if folder.id != head.id]
    for folder in folders[-RECENT:]:
        finished = _of(folder, head)
        if finished:
            yield folder.id, finished


def _of(folder: SessionFolder, head: SessionHead) -> tuple[Finished, ...]:
    try:
        then = folder.head()
        alike = then.started < head.started and environment(then) == environment(head)
        return folder.finished() if alike else ()
    except LoopError as error:
        left_out(error)
        return ()


def _ideas(session: str, finished: Sequence[Finished]) -> Iterator[LostIdea]:
    """The changes of a session that were judged and taken back."""
    digests = {run: brief.digest for run, brief in by_run(finished, BriefOutput)}
    for run, decision in by_run(finished, DecisionOutput):
        tried = decision.tried
        if tried is not None and tried.outcome == "reverted":
            yield LostIdea(
                session=session,
                variant=tried.variant,
                reason=tried.reason,
                gain=tried.gain,
                files=tried.files,
                patch=tried.patch,
                digest=digests.get(run, ""),
            )


def _searches(session: str, finished: Sequence[Finished]) -> Iterator[PastSearch]:
    tried = {run: decision.tried for run, decision in by_run(finished, DecisionOutput)}
    back = {run: attempt.reason for run, attempt in tried.items() if attempt and attempt.outcome == "reverted"}
    for run, output in by_run(finished, TuneOutput):
        if output.trials:
            yield PastSearch(
                session=session, ground=output.ground, trials=output.trials, taken_back=back.get(run, "")
            )

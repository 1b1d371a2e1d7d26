"""Changes and searches of earlier sessions in the same environment: what lost there is not proposed again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from loop.base.errors import LoopError
from loop.model.change import BriefOutput, DecisionOutput, LostIdea, PastSearch, TuneOutput
from loop.model.output import read_output
from loop.model.record import Finished, SessionHead
from loop.store.sessions import RECENT, SessionFolder, every, left_out


def lost_ideas(root: Path, head: SessionHead) -> tuple[LostIdea, ...]:
    """Changes that earlier sessions took back, oldest first; each change once, as it was judged last."""
    found = [one for session, finished in _before(root, head) for one in _ideas(session, finished)]
    return tuple({one.digest or f"{one.session} {one.patch}": one for one in found}.values())


def searches(root: Path, head: SessionHead) -> tuple[PastSearch, ...]:
    """Searches of earlier sessions, oldest first."""
    return tuple(one for session, finished in _before(root, head) for one in _searches(session, finished))


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
    briefs = [(record.run, read_output(record, BriefOutput)) for record in finished]
    digests = {run: brief.digest for run, brief in briefs if brief}
    for run, decision in _decisions(finished):
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
    back = {r: d.tried.reason for r, d in _decisions(finished) if d.tried and d.tried.outcome == "reverted"}
    for record in finished:
        output = read_output(record, TuneOutput)
        if output and output.trials:
            yield PastSearch(
                session=session,
                ground=output.ground,
                trials=output.trials,
                taken_back=back.get(record.run, ""),
            )


def _decisions(finished: Sequence[Finished]) -> Iterator[tuple[int, DecisionOutput]]:
    for record in finished:
        output = read_output(record, DecisionOutput)
        if output:
            yield record.run, output

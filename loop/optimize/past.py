"""What earlier sessions changed: reverted changes, and searches over tuning values."""

from pathlib import Path

from loop.model.change import BriefOutput, DecisionOutput, PastSearch, TriedChange
from loop.model.output import outputs_by_run
from loop.model.record import SessionHead
from loop.store.sessions import earlier_sessions


def comparable_key(head: SessionHead) -> tuple[object, ...]:
    """Target, device and toolchain of a session: what lost under an equal key would lose again."""
    machine, is_gpu = head.machine, head.device == "cuda"
    hardware = (machine.gpus[:1], machine.driver, machine.nvcc) if is_gpu else (machine.processor,)
    return head.target, head.target_folder, head.device, head.threads, hardware, machine.compiler


def reverted_changes(root: Path, head: SessionHead) -> tuple[TriedChange, ...]:
    """Changes that earlier sessions with this toolchain reverted. A repeated patch appears once."""
    reverted: dict[str, TriedChange] = {}
    for folder, _, steps in earlier_sessions(root, head, comparable_key):
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
    for folder, _, steps in earlier_sessions(root, head, comparable_key):
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

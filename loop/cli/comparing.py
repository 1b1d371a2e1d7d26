"""`loop sessions compare`: shows two or more sessions next to each other."""

from collections.abc import Sequence
from pathlib import Path

from loop.base.documents import to_json
from loop.base.errors import UsageError, WorkFailed
from loop.base.places import find_project
from loop.base.screen import Screen
from loop.learning.comparison import LETTERS, ComparedSession, compare, sections
from loop.model.index import SessionResults
from loop.model.verdict import Verdict
from loop.report.sections import print_sections
from loop.session import recorded
from loop.store import sessions
from loop.store.rows import compute_row

MOST_SESSIONS = len(LETTERS)


def compare_sessions(names: Sequence[str], target: Path | None, screen: Screen, *, as_json: bool) -> None:
    """Print a comparison of 2 to `MOST_SESSIONS` sessions, in the order of `names`, as a table or as JSON."""
    here = find_project(target, Path.cwd())
    if not 2 <= len(names) <= MOST_SESSIONS:
        hint = "loop sessions compare last~1 last"
        raise UsageError(f"{len(names)} sessions named: expected 2 to {MOST_SESSIONS}", hint=hint)
    compared = [_find(here.sessions, name) for name in names]
    ids = [session.id for session in compared]
    if len(set(ids)) < len(ids):
        message = f"a session is named twice: {', '.join(ids)}"
        raise UsageError(message, hint="`loop sessions list` names the others")
    comparison = compare(compared)
    if as_json:
        screen.data(to_json(comparison))
    else:
        print_sections(sections(comparison), screen)


def _find(root: Path, name: str) -> ComparedSession:
    """A session by id, prefix, `last` or `last~1`. Raises LoopError for an imported or damaged session."""
    imported = recorded.find_recorded(root, name)
    if imported is not None:
        reason = "on which workloads is not known, so it is compared with none"
        raise UsageError(f"{imported.id} was recorded elsewhere: {reason}", f"loop sessions show {imported.id}")
    folder = sessions.find_session(root, name)
    row, problem = compute_row(folder.path)
    if row is None:
        raise WorkFailed(problem, hint=f"move {folder.path} aside")
    head, record = folder.head(), folder.record()
    verdicts: dict[str, dict[str, Verdict]] = {}
    for verdict in record.verdicts if record else ():
        if verdict.against == "baseline":  # A wrong variant has only this verdict.
            verdicts.setdefault(verdict.variant, {})[verdict.workload] = verdict
    machine, uses_gpu, commit = head.machine, head.device == "cuda", head.revision.commit
    if commit is not None:
        commit = commit[:12] + (" + changes" if head.revision.dirty else "")
    facts = {
        "machine": machine.name,
        "system": machine.system,
        "processor": machine.processor,
        "cores": str(machine.cores),
        "memory": f"{machine.memory_gb:.0f} GiB",
        "threads": str(head.threads),
        "GPU": (machine.gpus[0] if machine.gpus else None) if uses_gpu else "not used",
        "driver": machine.driver if uses_gpu else "not used",
        "torch": row.environment.torch,
        "nvcc": machine.nvcc or "none",
        "compiler": machine.compiler or "none",
        "Python": machine.python,
        "loop": head.loop_version,
        "commit": commit,
    }
    return ComparedSession(
        started=head.started,
        status=row.status or "open",
        baseline=head.baseline,
        plan=row.plan,
        sets=head.plan.plan.workloads,
        facts=facts,
        verdicts=verdicts,
        seconds=row.seconds if record else None,
        usd=row.usd if record else None,
        **{name: getattr(row, name) for name in SessionResults.model_fields},
    )

"""`loop run session`: opens a session, walks its steps, closes it; also resumes one."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from loop.agents import proposing
from loop.base.documents import to_json, write_atomic
from loop.base.errors import LoopError, MachineFailure, UsageError, WorkFailed
from loop.base.locks import locked
from loop.base.places import WORKTREES, state_folder
from loop.base.processes import signals_as_flags
from loop.builds.build import list_inputs
from loop.gate.kernel import find_known_good
from loop.learning.failures import FailureHistory
from loop.learning.prediction import with_prediction
from loop.library import targets, trust
from loop.library.rates import rates
from loop.machine.failures import Folders, find_machine_failure
from loop.model.record import RESUMABLE, Closed, Opened, SessionHead, Started
from loop.money.bill import hourly_usd
from loop.optimize.session_changes import reverted_changes
from loop.report.screen import Screen
from loop.repository import worktree
from loop.repository.worktree import add_new_files, read_revision
from loop.session import closing, opening
from loop.session.drive import Ending, Show, drive, store_event
from loop.session.next_session import with_failing_seed
from loop.session.objective import compute_session_values, refuse_unmet_requirement
from loop.session.walk import Walk
from loop.steps.context import Context, Past, Task, Workshop
from loop.steps.setting import Setting, ask_for_session_trust, open_bench, trusted_setting
from loop.store import sessions
from loop.store.journal import NAME, Journal, finished_steps
from loop.store.sessions import CHANGES, LOCK, SessionFolder, verified_builds


@dataclass(frozen=True)
class Session:
    """A session that is running: the request, the project, and where records go."""

    request: opening.SessionRequest
    setting: Setting
    head: SessionHead
    folder: SessionFolder
    screen: Screen


def worktree_path(head: SessionHead, folder: SessionFolder) -> Path:
    """Path of the session's worktree. It contains a hash of the target's files and the session's
    folder, because copies of a project may have sessions with equal ids."""
    digest = hashlib.sha256(f"{head.ground}\0{folder.path.resolve()}".encode()).hexdigest()
    return state_folder() / WORKTREES / Path(f"{head.id}-{digest[:8]}").name


def run_session(request: opening.SessionRequest, screen: Screen) -> int:
    """Run a new session, or only show its plan (`--dry-run`). Without a seed, it takes the one at
    which a variant last failed, else a random one. Returns the exit code."""
    setting = trusted_setting(request.target, screen)
    resolved = opening.resolve_request(request, setting)
    head, seed_note = opening.make_head(request, setting, resolved), ""
    if request.seed is None:
        head, seed_note = with_failing_seed(setting, head)
    head = with_prediction(head, setting)
    request.limits.check(head, rates(setting.project))
    proposing.refuse_unready(request.campaign)
    opening.refuse_changes(head, setting.target, setting.project.target, request.target)
    if request.dry_run:
        return opening.show_plan(head, rates(setting.project), screen, as_json=request.json)
    refuse_unmet_requirement(head)
    if seed_note:
        screen.say(seed_note)
    instruction = f"go on with: {head.repeat_command()}"
    with signals_as_flags(), errors_as_machine_failures(setting, instruction):
        folder = sessions.create_session(setting.project.sessions, resolved.plan.name, head.started)
        head = head.model_copy(update={"id": folder.id})
        trust.grant_session(folder.path, head)
        with folder.locked_with_head(head):
            return walk_and_close(Session(request, setting, head, folder, screen), repeat_all=False)


def resume_session(name: str, request: opening.SessionRequest, screen: Screen) -> int:
    """Resume an interrupted session by its id, prefix or `last`; of one that has ended, only print
    the outcome. If the target's files have changed, every step runs again. Returns the exit code.
    Raises UsageError for another plan or target than the session's, and for files that were changed
    beside the session's own edit, which only `--decline` gives up."""
    command = f"loop run session --resume {name}"
    if request.plan is not None:
        raise UsageError("a resumed session has its plan already", hint=command)
    setting = trusted_setting(request.target, screen)
    folder = sessions.find_session(setting.project.sessions, name)
    hint = f"go on with: {command}"
    with signals_as_flags(), errors_as_machine_failures(setting, hint), locked(folder.path / LOCK):
        head, record, lines = folder.head(), folder.record(), folder.lines()
        request.limits.check(head, rates(setting.project))
        # Nothing follows the close event; a session that runs, or was killed, has another event.
        end = lines[-1].event if lines else None
        if record is not None and isinstance(end, Closed) and end.status not in RESUMABLE:
            screen.say(f"{folder.id} has ended already: {record.reason}")
            return closing.print_outcome(setting, record, folder, screen, request)
        if head.target != setting.target.name:
            message = f"{folder.id} is a session of {head.target}, not of {setting.target.name}"
            raise UsageError(message, hint=f"--target {head.target_folder}")
        ask_for_session_trust(folder.path, head, setting, screen)
        target, tree = setting.project.target, worktree_path(head, folder)
        sources = targets.session_hashes(setting.project) | {"revision": read_revision(target)}
        is_changed = sources["ground"] != head.ground
        if is_changed and worktree.find_worktree(target, tree) is not None:
            if not request.decline:
                message = f"{target} was edited since {head.id} began: its edit in {tree} is older"
                hint = f"restore {target} and resume, or end it: {head.resume_command} --decline"
                raise UsageError(message, hint)
            is_changed, sources = False, {}  # It ends without its edit of the old files.
        if is_changed:
            screen.say("the target's files have changed since: every step is done again")
        head = head.model_copy(update={"attended": head.attended or request.attended, **sources})
        folder.write_head(head)
        session = Session(request, setting, head, folder, screen)
        return walk_and_close(session, repeat_all=is_changed)


def walk_and_close(session: Session, *, repeat_all: bool) -> int:
    """Walk the open steps, or all (`repeat_all`), and close. Returns the exit code. A LoopError
    becomes WorkFailed, with the resume command in its hint; MachineFailure passes with its own."""
    instruction = f"go on with: {session.head.resume_command}"
    try:
        with errors_as_machine_failures(session.setting, instruction):
            journal, ending = run_remaining_steps(session, repeat_all=repeat_all)
            return close_session(session, journal, ending)
    except MachineFailure:
        raise
    except LoopError as error:
        resume_command = f"loop run session --resume {session.folder.id}"
        hint = f"{error.hint}, then go on with: {resume_command}" if error.hint else resume_command
        raise WorkFailed(error.message, hint) from error


@contextlib.contextmanager
def errors_as_machine_failures(setting: Setting, instruction: str) -> Iterator[None]:
    """Raise MachineFailure in place of an error that a machine failure caused, such as a full disk;
    its hint ends with `instruction`. Other errors pass unchanged."""
    try:
        yield
    except MachineFailure:
        raise
    except (LoopError, OSError, MemoryError, RuntimeError) as error:
        folders = Folders.for_process(setting.project.sessions, setting.project.target)
        failure = find_machine_failure(error, folders)
        if failure is None:
            raise
        raise failure.with_instruction(instruction) from error


def run_remaining_steps(session: Session, *, repeat_all: bool) -> tuple[Journal, Ending]:
    """Run the open steps, or all (`repeat_all`). Returns the open journal, and how they ended."""
    head, setting, folder, request = session.head, session.setting, session.folder, session.request
    root, card = setting.project.sessions, rates(setting.project)
    journal = Journal(folder.path / NAME)
    proposing.save_stated_cost(folder, request.stated_ai_usd)
    ai, _ = proposing.read_session_use(folder)
    bounds = request.limits.make_bounds(head, card, journal.lines, ai)
    journal.append(Opened(resumed=bool(journal.lines), fresh=repeat_all, pid=os.getpid()))
    title = f"session {head.id}: {head.plan.plan.title}"
    session.screen.say("\n  ".join([title, *opening.announcement_lines(head)]))
    if request.events:
        begin = {"schema_version": 1, "happening": "SessionBegan", "session": head.id}
        session.screen.data(to_json({**begin, "folder": str(folder.path)}, None))
    folder.write_reserve()  # A spare file, deleted when the disk is full.
    bounds.free_reserve = folder.free_reserve
    card = card.with_waiting_person(is_attended=head.attended)
    task = Task(
        plan=head.plan.plan,
        variants=head.variants,
        emulated=head.emulated,
        machine=head.machine,
        seed=head.seed,
        folder=setting.project.target,
        session=head.id,
        sources_hash=head.ground,
        uncompiled_hash=head.harness,
        hypothesis=head.hypothesis,
        patterns=tuple(planned.pattern for planned in head.plan.patterns),
        retries_lost_changes=request.again,
        usd_per_hour=hourly_usd(card, head),
        campaign=head.campaign,
        workshop=Workshop(
            worktree=worktree_path(head, folder),
            briefs_folder=folder.path / CHANGES,
            resume_command=head.resume_command,
            is_declined=request.decline,
        ),
        card=card,
    )
    rows = sessions.rows(root, last=sessions.RECENT_SESSIONS, target=head.target)
    past = Past(
        known_good=find_known_good(root, head),
        verified_builds=verified_builds(root, head),
        reverted_changes=reverted_changes(root, head) if task.has_change_steps else (),
        sessions=tuple(row for row in rows if row.id != head.id),
        read_steps=lambda name: SessionFolder(root / name).finished(),
    )
    patterns = [planned.pattern for planned in head.plan.patterns if planned.planned]
    begun_attempts = [line.event for line in journal.lines if isinstance(line.event, Started)]
    with open_bench(setting, head.device, head.threads) as bench:
        if any(step.action == "kernel.verify" for pattern in patterns for step in pattern.steps):
            bench.warm_up()  # torch is imported while the compiler works
        walk = Walk(
            resolved=head.plan,
            context=Context(bench, task, past, bounds.preemption_watch),
            session_values=partial(compute_session_values, card, head),
            head=head,
            earlier_records=finished_steps(journal.lines),
            begun_attempts=begun_attempts,
            folders=Folders.for_process(root, setting.project.target),
        )
        history = FailureHistory(setting.project, head)
        show = Show(session.screen, request.events, history.describe_failures)
        ending = drive(walk, show, partial(store_event, folder, journal), bounds)
    folder.free_reserve()
    if bounds.preemption_watch is not None:
        bounds.preemption_watch.close()
        ending = replace(ending, unwatched_sentences=bounds.preemption_watch.explain_unwatched())
    return journal, ending


def close_session(session: Session, journal: Journal, ending: Ending) -> int:
    """Write record and report, print the outcome, remove the worktree of an ended session if it has
    no edits. Returns the exit code of the `ending`, else that of the outcome."""
    setting, folder, screen, head = session.setting, session.folder, session.screen, session.head
    target, files_read = setting.project.target, list[Path]()
    with open_bench(setting, head.device, head.threads) as bench:
        variants = {**bench.compiled_variants(head.variants)}
        variants |= bench.emulated_variants(head.emulated)
        for variant in variants.values():
            names = list_inputs(variant, target, cache=bench.cache, include=bench.include)
            files_read += [target / name for name in names]
    # The revision also names uncommitted files outside the target's folder that the builds read.
    head = head.model_copy(update={"revision": add_new_files(head.revision, target, files_read)})
    folder.write_head(head)
    seconds = sessions.running_seconds(journal.lines)
    record = closing.make_record(setting, head, folder, ending, seconds)
    folder.write_record(record)
    text, figures = closing.render(setting, record, folder)
    sessions.write_figures(folder.path, {figure.path: figure.file for figure in figures})
    write_atomic(folder.report, text)
    journal.append(Closed(status=record.status, reason=record.reason))
    journal.close()
    tree = worktree.find_worktree(target, worktree_path(head, folder))
    if record.status not in RESUMABLE and tree is not None and not tree.changed_lines():
        tree.remove()
    request, phrase = session.request, ending.resume_phrase
    gate_exit_code = closing.print_outcome(setting, record, folder, screen, request, phrase)
    return ending.exit_code or gate_exit_code

"""Makes MCP tools of commands: name, arguments, answer. Adds tools for jobs and for edits."""

import contextlib
import datetime
import io
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from typer import Argument, Option

from loop.base.documents import did_you_mean, write_atomic
from loop.base.errors import EXIT_CODES, UsageError
from loop.base.locks import is_locked
from loop.base.places import find_project
from loop.base.screen import Screen
from loop.cli import ALL
from loop.cli.command import Command, default_of
from loop.cli.commands import Target
from loop.jobs import folder as folders
from loop.jobs.executor import start_detached as begin_apart
from loop.jobs.folder import JobFolder, read_text
from loop.library import trust
from loop.model.base import Printed
from loop.model.change import Brief, BriefOutput
from loop.model.output import outputs_by_run
from loop.model.record import RESUMABLE
from loop.optimize.edits import LARGEST, may_change, page_of
from loop.repository import worktree
from loop.session.closing import pending_brief_page
from loop.session.command import find_session_to_report
from loop.session.run import worktree_path
from loop.store.sessions import CHANGES, LOCK, SessionFolder

SessionId = Annotated[str, Argument(help="An id of a session, its beginning, or last.")]


@dataclass(frozen=True)
class WaitingChange:
    """A session that waits for a code change. Paths are computed here, never read from its journal."""

    folder: SessionFolder
    brief: Brief
    top: Path
    """The target's folder in the session's worktree."""
    committed: frozenset[str]
    """Files that existed before the change."""

    def file(self, name: str) -> Path:
        """Path of an editable file. Raises UsageError for one outside `top`, also through a link."""
        path = self.top / name
        if path.resolve() != path or not path.is_relative_to(self.top):
            hint = f"these may change: {', '.join(self.brief.files)}"
            raise UsageError(f"{name} is no plain file in {self.top}", hint)
        return path

    def judged(self, target: Path | None) -> str:
        """The tool call that has the change judged."""
        return f"run_session with resume={self.folder.id}" + (f" and target={target}" if target else "")


def waiting_session(session: str, target: Path | None) -> WaitingChange:
    """The waiting session and its brief. Raises Untrusted, and UsageError if it waits for no change."""
    here = find_project(target, Path.cwd())
    folder = find_session_to_report(here.sessions, session)
    if not trust.is_trusted(here):
        raise trust.refusal_text(here)
    if is_locked(folder.path / LOCK):
        raise UsageError(f"{folder.id} is at work", hint="job_wait, then read the brief again")
    finished = folder.finished()
    brief = outputs_by_run(finished, BriefOutput)[-1][1].brief if pending_brief_page(folder, finished) else None
    if brief is None:
        hint = "run_session with plan=optimize begins a session that asks for one; sessions_list shows all"
        raise UsageError(f"{folder.id} waits for no change", hint)
    tree = worktree.find_worktree(here.target, worktree_path(folder.head(), folder))
    if tree is None:
        raise UsageError(f"the worktree of {folder.id} is gone", hint="run_session with plan=optimize begins anew")
    return WaitingChange(folder, brief, tree.target.resolve(), frozenset(tree.committed()))


def change_brief(session: SessionId = "last", target: Target = None) -> dict[str, Any]:
    """Read what a waiting session asks for: the brief, how changes are judged, and the files that may change."""
    change = waiting_session(session, target)
    return {
        "schema_version": 1,
        "session": change.folder.id,
        "brief": change.brief,
        "sources": {name: read_text(change.file(name)) for name in change.brief.files},
        "page": read_text(page_of(change.folder.path / CHANGES, change.brief)),
        "next": f"change_edit, kernels_check with target={change.top}, then {change.judged(target)}; "
        "with decline=true the session ends without a further change",
    }


def change_edit(
    file: Annotated[str, Argument(help="A file that the brief lets you change, or a new one beside it.")],
    text: Annotated[str, Argument(help="All that it is to hold.")],
    session: Annotated[str, Option(help="An id of a session, its beginning, or last.")] = "last",
    target: Target = None,
) -> dict[str, Any]:
    """Write one file of the change that a waiting session asks for, in the session's own worktree.

    `kernels_check` with the folder as target says in seconds whether it is right. `run_session` with
    `resume` has it judged.
    """
    change = waiting_session(session, target)
    brief, path, name = change.brief, change.file(file), str(Path(file))
    if not may_change(name, brief.files, change.committed):
        shared = f"; others are built from it: {', '.join(brief.shared[name])}" if name in brief.shared else ""
        raise UsageError(f"{file} may not change{shared}", hint=f"these may: {', '.join(brief.files)}")
    if len(text.encode()) > LARGEST:
        raise UsageError(f"{file} would be larger than {LARGEST} bytes", hint="split what is generated")
    changed = not path.is_file() or path.read_text(errors="replace") != text
    write_atomic(path, text)
    check = f"kernels_check with target={change.top} and variants=[{brief.variant}]"
    answer = {"schema_version": 1, "session": change.folder.id, "file": file, "changed": changed}
    return {**answer, "next": f"{check}, then {change.judged(target)}"}


LONGEST_WAIT_S = 50.0
"""Longest wait of one call in seconds: clients time out after about a minute."""
KEPT = 100
"""How many job folders of agents are kept."""
PREFIX = "mcp-"
"""Prefix of ids of jobs that agents start. Only these job folders are deleted here."""
AT_WORK = ("queued", "running")
"""States of a job that has not ended."""
ENDS_S = 20.0
"""Seconds for a job to end after it was cancelled."""
JobId = Annotated[str, Argument(help="An id that a tool returned, or last.")]


class JobState(Printed):
    """The state of a job, and its result once it has ended."""

    job: str
    state: Literal["running", "ended", "lost"]
    """`lost`: the job and its watching process were killed, as by a restart of the machine."""
    command: str
    exit_code: int | None = None
    """Exit code of the command; None while it runs."""
    means: str = ""
    seconds: float = 0.0
    """Seconds since the job's begin, up to its end."""
    doing: str = ""
    """The last message of the job."""
    session: str = ""
    """Id of the session that the job runs; empty for other work."""
    result: dict[str, Any] | None = None
    """What the command's `--json` prints; None while it runs."""
    next: str = ""


def status(job: JobFolder) -> JobState:
    """The state of a job, from the files in its folder."""
    running, code, objects = job.state in AT_WORK, job.exit_code, list[dict[str, Any]]()
    text = read_text(job.path / folders.OUT)  # With --events one JSON object per line, else one object.
    for part in text.splitlines() if "--events" in job.task.words else [text]:
        with contextlib.suppress(ValueError):  # Not written completely yet.
            objects.append(json.loads(part))
    session = next((str(event["session"]) for event in objects if event.get("happening") == "SessionBegan"), "")
    last: dict[str, Any] = objects[-1] if objects and not running else {}
    whole = last.get("happening", "SessionEnded") == "SessionEnded"  # Any other last event: it was killed.
    result = {name: value for name, value in last.items() if whole and name != "happening"}
    steps = [event for event in objects if event.get("happening") in ("StepBegan", "Ticked", "StepEnded")]
    doing = folders.last_line(job.path / folders.STDERR)
    if steps:
        text = steps[-1].get("message") or steps[-1].get("note") or steps[-1].get("title", "")
        doing = f"{steps[-1]['pattern']}/{steps[-1]['step']}: {text}"
    if running:
        then = f"job_wait with job={job.id}"
    elif code is None:
        then = f"run_session with resume={session}" if session else "call the same tool again"
    elif error := result.get("error"):
        then = str(error["next"])
    elif result.get("brief"):
        then = f"change_brief with session={session}"
    elif result.get("status") in RESUMABLE:
        then = f"{result['reason']}; run_session with resume={session} goes on"
    else:
        then = " ".join(str(result.get("proposal", "")).split())
    ended = max(folders.modified_at(job.path / name) for name in (folders.OUT, folders.RC))
    until = time.time() if running else ended
    return JobState(
        job=job.id,
        state="running" if running else "lost" if code is None else "ended",
        command=shlex.join(["loop", *job.task.words]),
        exit_code=code,
        means=EXIT_CODES.get(code, ""),
        seconds=round(max(0.0, until - folders.modified_at(job.path / folders.TASK)), 1),
        doing=doing,
        session=session,
        result=result or None,
        next=then,
    )


def begin(words: Sequence[str], name: str) -> JobFolder:
    """Start `loop WORDS` as a job in a process of its own, and return at once. `name`: the tool's."""
    folders.remove_old_jobs(KEPT, PREFIX)
    now = datetime.datetime.now(datetime.UTC)
    name = f"{PREFIX}{now:%Y%m%d-%H%M%S}-{now.microsecond:06}-{name.replace('_', '-')}"
    job = folders.create_job(folders.Job(id=name, words=tuple(words), folder=str(Path.cwd())))
    begin_apart(job)
    return job


def find_job(name: str) -> JobFolder:
    """A job that an agent started, by its id or `last`. Raises UsageError for an unknown id."""
    known = {job.id: job for job in folders.list_jobs() if job.id.startswith(PREFIX)}
    chosen = max(known, default=name) if name == "last" else name
    if chosen not in known:
        recent = f"the newest: {', '.join(sorted(known)[-3:])}" if known else "a tool that starts work returns one"
        raise UsageError(f"no job {name!r}", hint=recent)
    return known[chosen]


def wait(job: JobFolder, seconds: float) -> JobState:
    """Wait until a job ends, at most `seconds` and `LONGEST_WAIT_S`. Returns its state."""
    end = time.monotonic() + min(seconds, LONGEST_WAIT_S)
    while job.state in AT_WORK and time.monotonic() < end:
        time.sleep(0.05)
    return status(job)


def job_status(job: JobId = "last") -> JobState:
    """Show what a job does, or its result. Without an id: the last job."""
    return status(find_job(job))


def job_wait(
    job: JobId = "last",
    wait_s: Annotated[float, Option(help="Seconds to wait.", min=0, max=LONGEST_WAIT_S)] = LONGEST_WAIT_S,
) -> JobState:
    """Wait for a job to end, up to 50 s; call it again while the state is `running`."""
    return wait(find_job(job), wait_s)


def job_cancel(job: JobId = "last") -> JobState:
    """End a job in good order. A session that is cancelled can be resumed."""
    chosen = find_job(job)
    chosen.cancel()
    return wait(chosen, ENDS_S)


HIDDEN = frozenset(
    (
        # How a result is printed.
        *("json", "events", "form", "output", "limit", "link"),
        # For a proposer that is a program, or for whoever pays.
        *("width", "proposer_minutes", "quiet_minutes", "max_tokens", "ai_usd"),
        # What names a program, opens the environment to one, or spends money.
        *("command", "probe", "probe_limit_s", "env", "evaluator", "on", "keep_until", "executor"),
    )
)
"""Parameters that no tool has: only a person may set them."""
WAIT = "wait_s"
WAITED_S = 30.0
OWN = (
    Command("job status", job_status, mcp="reads", has_json=True),
    Command("job wait", job_wait, mcp="reads", has_json=True),
    Command("job cancel", job_cancel, mcp="ends", has_json=True),
    Command("change brief", change_brief, mcp="reads", has_json=True),
    Command("change edit", change_edit, mcp="edits", has_json=True),
)
"""Tools without a command: for jobs, and for editing without a shell."""


@dataclass(frozen=True)
class Tool:
    """A command as an MCP tool."""

    command: Command

    @property
    def name(self) -> str:
        """The command's words joined by underscores: `kernels_verify`."""
        return self.command.words.replace(" ", "_").replace("-", "_")

    @property
    def starts(self) -> bool:
        """Whether the tool starts a job that may outlast the call."""
        return self.command.mcp == "starts"

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The command's parameters that a tool may set, by name."""
        return {parameter.name: parameter for parameter in self.command.parameters if parameter.name not in HIDDEN}

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """A pydantic model of the arguments; it rejects unknown names."""
        fields: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            option, kind = parameter.annotation.__metadata__[0], parameter.annotation.__origin__
            text, default = option.help, ... if parameter.default is Parameter.empty else parameter.default
            if name == "proposer":
                kind = Literal["person", "tuner"]
                text = "You (`person`: it pauses with a brief), or a search (`tuner`)."
            fields[name] = kind, Field(default, description=text, ge=option.min, le=option.max)
        if self.starts:
            text = "Wait so long for the end; after that `job_wait` goes on waiting."
            fields[WAIT] = (float, Field(WAITED_S, ge=0, le=LONGEST_WAIT_S, description=text))
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Check the arguments of a call. Raises UsageError that names the wrong one and describes it."""
        try:
            return dict(self.arguments.model_validate(dict(values)))
        except ValidationError as error:
            first = error.errors()[0]
            name, known = str(first["loc"][0]), self.arguments.model_fields
            if name in known:
                hint = f"{name}: {known[name].description}"
            elif name in self.command.parameter_names:
                hint = f"only a person gives that; a person runs: loop {self.command.words}"
            else:
                hint = did_you_mean(name, list(known)) or f"it takes {', '.join(known) or 'none'}"
            raise UsageError(f"{self.name}: {name}: {first['msg'].lower()}"[:400], hint) from error

    def call(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run the command in this process, and return what `--json` prints. Only for commands that read."""
        out = io.StringIO()
        defaults = {parameter.name: default_of(parameter) for parameter in self.command.parameters}
        self.command.call({**defaults, **values, "json": True}, Screen(out, io.StringIO(), is_quiet=True))
        return json.loads(out.getvalue())  # type: ignore[no-any-return]

    def words(self, values: Mapping[str, Any]) -> list[str]:
        """The words after `loop` on the command line that do the same."""
        form = "events" if "events" in self.command.parameter_names and not values.get("dry_run") else "json"
        return self.command.command_line({**{name: values[name] for name in self.parameters}, form: True})


def tools() -> dict[str, Tool]:
    """All tools by name."""
    rows = (Tool(command) for command in (*ALL, *OWN) if command.mcp)
    return {row.name: row for row in rows}

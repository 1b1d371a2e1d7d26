"""`loop mcp`: makes MCP tools of commands, adds tools for jobs, serves them on stdin and stdout."""

import contextlib
import datetime
import io
import json
import os
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

from loop import __version__
from loop.base.documents import did_you_mean
from loop.base.documents.schemas import Untitled
from loop.base.errors import ExitCode, LoopError, UsageError
from loop.cli import ALL, call_with_loop_errors
from loop.cli.command import Command, default_of
from loop.jobs import folder as folders
from loop.jobs.executor import start_detached
from loop.jobs.folder import JobFolder, read_text
from loop.model.base import Printed
from loop.model.record import RESUMABLE
from loop.report.screen import Screen

try:
    import anyio
    import mcp_types as types
    from anyio.to_thread import run_sync
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
except ModuleNotFoundError as error:
    hint = "pip install 'kernel-loop[mcp]'"
    raise UsageError("`loop mcp` needs the package `mcp`", hint) from error

LONGEST_WAIT_S = 50.0  # Longest wait of one call in seconds: clients time out after about a minute.
KEPT_JOBS = 100  # How many job folders of agents are kept.
JOB_ID_PREFIX = "mcp-"  # Of jobs that agents start. Only their folders are deleted here.
UNENDED_STATES = ("queued", "running")
CANCEL_LIMIT_S = 20.0  # Seconds for a job to end after it was cancelled.
JobId = Annotated[str, Argument(help="An id that a tool returned, or last.")]
WaitS = Annotated[float, Option(help="Seconds to wait.", min=0, max=LONGEST_WAIT_S)]
# Parameters that no tool has, as only a person may set them. Those for a printed result:
HIDDEN = {"json", "events", "form", "format_name", "output", "limit", "link"}
# For a proposer that is a program, or for whoever pays:
HIDDEN |= {"width", "proposer_minutes", "quiet_minutes", "max_tokens", "ai_usd"}
# Those that name a program, open the environment to one, or spend money:
HIDDEN |= {"command", "probe", "probe_limit_s", "env", "on", "keep_host", "executor"}
WAIT_S = 30.0  # Seconds that a call waits for the job that it started, without a `wait_s`.


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


def read_state(job: JobFolder) -> JobState:
    """The state of a job, from the files in its folder; `lost` if it ended without an exit code."""
    is_running, code = job.state in UNENDED_STATES, job.exit_code
    session, doing = "", folders.last_line(job.path / folders.STDERR)
    result: dict[str, Any] = {}
    text = read_text(job.path / folders.STDOUT)
    for part in text.splitlines() if "--events" in job.task.words else [text]:
        event: dict[str, Any] = {"happening": ""}
        with contextlib.suppress(ValueError):  # Not written completely yet.
            event = json.loads(part)
        event_name = event.pop("happening", "SessionEnded")  # A plain result ends a command.
        if event_name == "SessionBegan":
            session = str(event["session"])
        elif event_name in ("StepBegan", "Ticked", "StepEnded"):
            progress = event.get("message") or event.get("note") or event.get("title", "")
            doing = f"{event['pattern']}/{event['step']}: {progress}"
        elif event_name == "SessionEnded" and not is_running:
            result = event
    end = time.time()
    if not is_running:
        last_files = (job.path / folders.STDOUT, job.path / folders.EXIT_CODE)
        end = max(map(folders.modified_at, last_files))
    state: Literal["running", "ended", "lost"] = "ended"
    if is_running:  # What an agent can do next.
        state, advice = "running", f"job_wait with job={job.id}"
    elif code is None:  # It was killed.
        state = "lost"
        advice = f"run_session with resume={session}" if session else "call the same tool again"
    elif error := result.get("error"):
        advice = str(error["next"])
    elif brief := result.get("brief"):
        advice = f"edit the files that {brief} names, then run_session with resume={session}"
    elif result.get("status") in RESUMABLE:
        advice = f"{result['reason']}; run_session with resume={session} goes on"
    else:
        advice = " ".join(str(result.get("proposal", "")).split())
    return JobState(
        job=job.id,
        state=state,
        command=shlex.join(["loop", *job.task.words]),
        exit_code=code,
        means=next((known.meaning for known in ExitCode if known == code), ""),
        seconds=round(max(0.0, end - folders.modified_at(job.path / folders.TASK)), 1),
        doing=doing,
        session=session,
        result=result or None,
        next=advice,
    )


def begin_job(words: Sequence[str], tool: str) -> JobFolder:
    """Start `loop WORDS` as a job in its own process, and return at once. `tool`: for its id."""
    folders.remove_old_jobs(KEPT_JOBS, JOB_ID_PREFIX)
    now = datetime.datetime.now(datetime.UTC)
    job_id = f"{JOB_ID_PREFIX}{now:%Y%m%d-%H%M%S}-{now.microsecond:06}-{tool.replace('_', '-')}"
    job = folders.create_job(folders.Job(id=job_id, words=tuple(words), folder=str(Path.cwd())))
    start_detached(job)
    return job


def find_job(name: str) -> JobFolder:
    """A job that an agent started, by its id or `last`. Raises UsageError for an unknown id."""
    jobs = {job.id: job for job in folders.list_jobs() if job.id.startswith(JOB_ID_PREFIX)}
    job_id = max(jobs, default=name) if name == "last" else name  # Ids begin with the time.
    if job_id not in jobs:
        newest = f"the newest: {', '.join(sorted(jobs)[-3:])}"
        raise UsageError(f"no job {name!r}", newest if jobs else "tools that start work return one")
    return jobs[job_id]


def wait_for_job(job: JobFolder, limit_s: float) -> JobState:
    """Wait until a job ends, at most `limit_s` and 50 s. Returns `read_state` of it then."""
    end = time.monotonic() + min(limit_s, LONGEST_WAIT_S)
    while job.state in UNENDED_STATES and time.monotonic() < end:
        time.sleep(0.05)
    return read_state(job)


def job_wait(job: JobId = "last", wait_s: WaitS = LONGEST_WAIT_S) -> JobState:
    """Wait for a job to end, up to 50 s; call it again while the state is `running`."""
    return wait_for_job(find_job(job), wait_s)


def job_cancel(job: JobId = "last") -> JobState:
    """End a job in good order. A session that is cancelled can be resumed."""
    folder = find_job(job)
    folder.cancel()
    return wait_for_job(folder, CANCEL_LIMIT_S)


# These are no commands of the command line.
JOB_WAIT = Command("job wait", job_wait, mcp="reads")
JOB_CANCEL = Command("job cancel", job_cancel, mcp="ends")


@dataclass(frozen=True)
class Tool:
    """A command as an MCP tool."""

    command: Command

    @property
    def name(self) -> str:
        """The command's words joined by underscores: `kernels_verify`."""
        return self.command.words.replace(" ", "_").replace("-", "_")

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The command's parameters that an agent may set, by name; those in `HIDDEN` it may not."""
        visible = [each for each in self.command.parameters if each.name not in HIDDEN]
        return {parameter.name: parameter for parameter in visible}

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """A pydantic model of the arguments. An agent may not name a program as proposer."""
        fields: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            option, kind = parameter.annotation.__metadata__[0], parameter.annotation.__origin__
            text = option.help
            if name == "proposer":
                kind = Literal["person", "tuner"]
                text = "You (`person`: it pauses with a brief), or a search (`tuner`)."
            default = ... if parameter.default is Parameter.empty else parameter.default
            fields[name] = (kind, Field(default, description=text, ge=option.min, le=option.max))
        if self.command.mcp == "starts":
            text = "Wait so long for the end; after that `job_wait` goes on waiting."
            fields["wait_s"] = (float, Field(WAIT_S, ge=0, le=LONGEST_WAIT_S, description=text))
        config = ConfigDict(extra="forbid")
        return create_model(f"{self.name}_arguments", __config__=config, **fields)

    def check_arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, with defaults. Raises UsageError that describes a wrong one."""
        try:
            return dict(self.arguments.model_validate(dict(values)))
        except ValidationError as error:
            first = error.errors()[0]
            name, fields = str(first["loc"][0]), self.arguments.model_fields
            if name in fields:
                hint = f"{name}: {fields[name].description}"
            elif name in self.command.parameter_names:
                hint = f"only a person gives that; a person runs: loop {self.command.words}"
            else:
                hint = did_you_mean(name, list(fields)) or f"it takes {', '.join(fields) or 'none'}"
            raise UsageError(f"{self.name}: {name}: {first['msg'].lower()}"[:400], hint) from error

    def call(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What `--json` prints: runs the command in this process. For tools that start no job."""
        out = io.StringIO()
        screen = Screen(out, io.StringIO(), is_quiet=True)
        defaults = {parameter.name: default_of(parameter) for parameter in self.command.parameters}
        self.command.call({**defaults, **values, "json": True}, screen)
        return json.loads(out.getvalue())  # type: ignore[no-any-return]

    def command_line(self, values: Mapping[str, Any]) -> list[str]:
        """The words after `loop` that do the same and print JSON; a session prints its events."""
        has_events = "events" in self.command.parameter_names and not values.get("dry_run")
        arguments = {name: values[name] for name in self.parameters}
        return self.command.command_line({**arguments, "events" if has_events else "json": True})


TOOLS = {tool.name: tool for tool in map(Tool, (*ALL, JOB_WAIT, JOB_CANCEL)) if tool.command.mcp}
"""All tools by name: commands that are marked for agents (`mcp`), and those only for agents."""
GUIDE = """\
loop judges changes to GPU and CPU kernels: correctness first, then speed with evidence.
Start with `status`, or `targets_inspect` and `kernels_list` for a target that you do not know.
A tool that starts work returns a job: `job_wait` until its state is `ended`.
An error has `code`, `message` and `next`. If its code is `untrusted`, ask your user to run the
command in `next`."""
PROGRESS_S = 1.0  # Seconds between two progress messages.


async def wait_and_report(job: JobFolder, limit_s: float, ctx: Any) -> dict[str, Any]:
    """Wait up to `limit_s` for a job, and report progress. Returns its state, with any error."""
    end = time.monotonic() + limit_s
    while job.state in UNENDED_STATES and time.monotonic() < end:
        state = await run_sync(read_state, job)
        await ctx.session.report_progress(state.seconds, None, state.doing or state.state)
        wait_s = min(PROGRESS_S, end - time.monotonic())
        await run_sync(wait_for_job, job, wait_s, abandon_on_cancel=True)
    answer = (await run_sync(read_state, job)).model_dump(mode="json")
    error = (answer["result"] or {}).get("error")
    return {**answer, "error": error} if error else answer


def new_server() -> Server[Any]:
    """The MCP server, not yet connected."""
    read_lock = anyio.Lock()

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        """All tools with schemas and hints (read-only, destructive). All act on this machine."""
        described = []
        for tool in TOOLS.values():
            command, effect = tool.command, tool.command.mcp
            texts = {"title": command.summary.rstrip("."), "description": command.help}
            schema = tool.arguments.model_json_schema(schema_generator=Untitled)
            hints = {"read_only_hint": effect == "reads", "destructive_hint": effect == "ends"}
            hints |= {"idempotent_hint": effect != "starts", "open_world_hint": False}
            annotations = types.ToolAnnotations(**hints)
            described.append(
                types.Tool(name=tool.name, input_schema=schema, annotations=annotations, **texts)
            )
        return types.ListToolsResult(tools=described)

    async def call(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run one tool call: its answer is a command's JSON, or the state of a job that it starts
        or waits for. An error becomes a result with `is_error`, a code and what to do next."""
        command_text = "loop"
        try:
            if params.name not in TOOLS:
                names = f"there are {', '.join(TOOLS)}; the rest is for a person: loop --help"
                hint = did_you_mean(params.name, list(TOOLS)) or names
                raise UsageError(f"there is no tool {params.name!r}", hint=hint)
            tool = TOOLS[params.name]
            command_text = f"loop {tool.command.words}"
            values = tool.check_arguments(params.arguments or {})
            if tool.command.mcp == "starts":
                wait_s, words = values.pop("wait_s"), tool.command_line(values)
                job = await run_sync(call_with_loop_errors, lambda: begin_job(words, tool.name))
                answer = await wait_and_report(job, wait_s, ctx)
            elif tool.name == "job_wait":
                answer = await wait_and_report(find_job(values["job"]), values["wait_s"], ctx)
            else:
                async with read_lock:  # Calls that start no job run one at a time.
                    answer = await run_sync(call_with_loop_errors, lambda: tool.call(values))
        except LoopError as error:
            answer = error.as_json(command_text)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))],
            structured_content=answer,
            is_error="error" in answer,
        )

    return Server(
        "loop", version=__version__, instructions=GUIDE, on_list_tools=list_tools, on_call_tool=call
    )


def serve() -> None:
    """`loop mcp`: answer calls until the client closes the connection, then exit. Jobs go on."""
    server = new_server()

    async def run() -> None:
        async with stdio_server() as (receive, send):
            await server.run(receive, send, server.create_initialization_options())

    try:
        anyio.run(run)
    except* (OSError, anyio.BrokenResourceError):
        pass  # The client closed the connection during an answer.
    os._exit(0)  # Do not wait for threads that still work.

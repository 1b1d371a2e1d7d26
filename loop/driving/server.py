"""`loop mcp`: serves the tools over the Model Context Protocol on stdin and stdout."""

import json
import os
import time
from typing import Any

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from loop import __version__
from loop.base.documents import did_you_mean
from loop.base.documents.schemas import Untitled
from loop.base.errors import LoopError, UsageError
from loop.cli import call_with_loop_errors
from loop.driving import tools
from loop.jobs.folder import JobFolder

INSTRUCTIONS = """\
loop judges changes to GPU and CPU kernels: correctness first, then speed with evidence.
Start with `status`, or `targets_inspect` and `kernels_list` for a target that you do not know.
A tool that starts work returns a job: `job_wait` until its state is `ended`.
An error has `code`, `message` and `next`. `untrusted` means: ask your user to run the command in `next`."""
PROGRESS_S = 1.0  # Seconds between two progress messages.


class ToolCalls:
    """Answers tool calls. Calls that only read run one at a time."""

    def __init__(self) -> None:
        self.tools = tools.tools()
        self.read_lock = anyio.Lock()  # Calls that start no job run one at a time.

    async def list(self, ctx: Any, params: Any) -> types.ListToolsResult:
        """All tools with their schemas and hints (read-only, destructive). None acts beyond this machine."""
        described = []
        for tool in self.tools.values():
            effect = tool.command.mcp
            fields = {"title": tool.command.summary.rstrip("."), "description": tool.command.help}
            schema = tool.arguments.model_json_schema(schema_generator=Untitled)
            hints = {"read_only_hint": effect == "reads", "destructive_hint": effect == "ends"}
            hints |= {"idempotent_hint": effect != "starts", "open_world_hint": False}
            annotations = types.ToolAnnotations(**hints)
            described.append(types.Tool(name=tool.name, input_schema=schema, annotations=annotations, **fields))
        return types.ListToolsResult(tools=described)

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run one tool call. An error becomes a result with `is_error`, a code and what to do next."""
        command_text = "loop"
        try:
            if params.name not in self.tools:
                names = f"there are {', '.join(self.tools)}; the rest is for a person: loop --help"
                hint = did_you_mean(params.name, list(self.tools)) or names
                raise UsageError(f"there is no tool {params.name!r}", hint=hint)
            tool = self.tools[params.name]
            command_text = f"loop {tool.command.words}"
            answer = await self._run(tool, tool.check_arguments(params.arguments or {}), ctx)
        except LoopError as error:
            answer = error.as_json(command_text)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))],
            structured_content=answer,
            is_error="error" in answer,
        )

    async def _run(self, tool: tools.Tool, values: dict[str, Any], ctx: Any) -> dict[str, Any]:
        """What a tool answers: a command's JSON, or the state of a job that it starts or waits for."""
        if tool.command.mcp == "starts":
            wait_s, words = values.pop("wait_s"), tool.command_line(values)
            job = await run_sync(call_with_loop_errors, lambda: tools.begin_job(words, tool.name))
            return await self._wait_for_job(job, wait_s, ctx)
        if tool.name == "job_wait":
            return await self._wait_for_job(tools.find_job(values["job"]), values["wait_s"], ctx)
        async with self.read_lock:
            return await run_sync(call_with_loop_errors, lambda: tool.call(values))

    async def _wait_for_job(self, job: JobFolder, limit_s: float, ctx: Any) -> dict[str, Any]:
        """Wait up to `limit_s` for a job, and report progress. Returns its state, with its error if any."""
        end = time.monotonic() + limit_s
        while job.state in tools.UNENDED_STATES and time.monotonic() < end:
            state = await run_sync(tools.read_state, job)
            await ctx.session.report_progress(state.seconds, None, state.doing or state.state)
            wait_s = min(PROGRESS_S, end - time.monotonic())
            await run_sync(tools.wait_for_job, job, wait_s, abandon_on_cancel=True)
        answer = (await run_sync(tools.read_state, job)).model_dump(mode="json")
        error = (answer["result"] or {}).get("error")
        return {**answer, "error": error} if error else answer


def new_server() -> Server[Any]:
    """The MCP server, not yet connected."""
    calls = ToolCalls()
    return Server(
        "loop", version=__version__, instructions=INSTRUCTIONS, on_list_tools=calls.list, on_call_tool=calls.call
    )


def serve() -> None:
    """Answer calls until the client closes the connection, then end this process. Jobs go on."""
    server = new_server()

    async def run() -> None:
        async with stdio_server() as (receive, send):
            await server.run(receive, send, server.create_initialization_options())

    try:
        anyio.run(run)
    except* (OSError, anyio.BrokenResourceError):
        pass  # The client closed the connection during an answer.
    os._exit(0)  # Do not wait for threads that still work.

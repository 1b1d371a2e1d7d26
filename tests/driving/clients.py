"""A client of the Model Context Protocol, the SDK's own, and a server in a process of its own."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVER = ["-c", "from loop.cli import main; main()", "mcp"]


class Agent:
    """What an agent sees: tools that answer in JSON."""

    def __init__(self, client: ClientSession) -> None:
        self.client = client
        self.notes: list[str] = []

    async def _note(self, progress: float, total: float | None, message: str | None) -> None:
        self.notes.append(message or "")

    async def asked(self, tool: str, **arguments: Any) -> tuple[bool, dict[str, Any]]:
        """Whether a call went well, and its structured answer."""
        done = await self.client.call_tool(tool, arguments, progress_callback=self._note)
        assert isinstance(done.structured_content, dict)
        return not done.is_error, done.structured_content

    async def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that has to go well."""
        well, told = await self.asked(tool, **arguments)
        assert well, told
        return told

    async def ended(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Start work and wait for its end, as often as it takes."""
        job = await self.answer(tool, **arguments)
        while job["state"] == "running":
            job = await self.answer("job_wait", job=job["job"])
        return job


def drive(story: Callable[[Agent], Awaitable[None]], folder: Path) -> None:
    """Run a server in `folder`, and let an agent do what the story says."""

    async def run() -> None:
        server = StdioServerParameters(command=sys.executable, args=SERVER, env=dict(os.environ), cwd=folder)
        async with stdio_client(server) as (receive, send), ClientSession(receive, send) as client:
            await client.initialize()
            await story(Agent(client))

    anyio.run(run)

"""A client of the Model Context Protocol, the SDK's own, and a server here or in a process of its own."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from loop.driving.server import new_server

SERVER = ["-P", "-c", "from loop.cli import main; main()", "mcp"]


class Agent:
    """What an agent sees: tools that answer in JSON."""

    def __init__(self, client: Client) -> None:
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


def drive(story: Callable[[Agent], Awaitable[None]], folder: Path | None = None) -> None:
    """Let an agent do what the story says: with a server in `folder`, or in this process."""

    async def run() -> None:
        own = StdioServerParameters(command=sys.executable, args=SERVER, env=dict(os.environ), cwd=folder)
        async with Client(own if folder else new_server()) as client:
            await story(Agent(client))

    anyio.run(run)

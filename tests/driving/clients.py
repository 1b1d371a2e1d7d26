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
    """The view of an agent: tools that answer in JSON."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.notes: list[str] = []

    async def _note(self, progress: float, total: float | None, message: str | None) -> None:
        self.notes.append(message or "")

    async def asked(self, tool: str, **arguments: Any) -> tuple[bool, dict[str, Any]]:
        """Whether a call succeeded, and its structured answer."""
        result = await self.client.call_tool(tool, arguments, progress_callback=self._note)
        assert isinstance(result.structured_content, dict)
        return not result.is_error, result.structured_content

    async def answer(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of a call that has to succeed."""
        ok, reply = await self.asked(tool, **arguments)
        assert ok, reply
        return reply

    async def ended(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Start work, and call the tool for its state until it has ended."""
        job = await self.answer(tool, **arguments)
        while job["state"] == "running":
            job = await self.answer("job_wait", job=job["job"])
        return job


def drive(story: Callable[[Agent], Awaitable[None]], folder: Path | None = None) -> None:
    """Run the story of an agent, with a server in `folder`, or in this process."""

    async def run() -> None:
        server = StdioServerParameters(command=sys.executable, args=SERVER, env=dict(os.environ), cwd=folder)
        async with Client(server if folder else new_server()) as client:
            await story(Agent(client))

    anyio.run(run)

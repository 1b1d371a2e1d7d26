"""Lets AI agents use `loop`: its commands as tools of an MCP server, and a skill that explains them.

Begin with `server`: it makes a tool of each command that has `mcp`, and speaks the protocol. Long
work becomes a job that outlives the server. `install` writes SKILL.md and a section of AGENTS.md
from the same commands.

Three kinds of commands are no tools: trust, programs named in a call, and what deletes files.
"""

from loop.base.errors import UsageError


def serve() -> None:
    """`loop mcp`: serve the Model Context Protocol on stdin and stdout until the client closes them. Raises
    UsageError without the package `mcp`."""
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError("`loop mcp` needs the package `mcp`", hint="pip install 'kernel-loop[mcp]'") from error
    from loop.driving import server

    server.serve()

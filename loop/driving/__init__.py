"""Agents that drive `loop`: the same commands as tools of an MCP server, and a skill that says how to use them.

Begin with `tools`: it derives a tool from each command that has `agents`, keeps work that takes longer than a
call as a job that outlives the server, and lets an agent without a shell read a brief and edit. `server`
speaks the protocol. `install` writes SKILL.md and a section of AGENTS.md from the same commands.

No command of a person's is a tool: trust, programs that are named in a call, and what removes something.
"""

from loop.base.errors import UsageError


def serve() -> None:
    """`loop mcp`: serve the Model Context Protocol on stdin and stdout until the client closes them."""
    try:
        import mcp  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError("`loop mcp` needs the package `mcp`", hint="pip install 'kernel-loop[mcp]'") from error
    from loop.driving import server

    server.serve()

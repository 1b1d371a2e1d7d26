"""`loop mcp`: what a person types to let agents drive."""

import importlib.util

from loop.base.errors import ExitCode, UsageError


def serve() -> int:
    """Serve the Model Context Protocol on stdin and stdout until the client closes them."""
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("`loop mcp` needs the package `mcp`", hint="pip install 'kernel-loop[mcp]'")
    from loop.driving import server

    server.serve()
    return ExitCode.OK

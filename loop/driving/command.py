"""`loop mcp` and `loop agents ...`: what a person types to let agents drive."""

import gc
import importlib.util

from loop.base.errors import ExitCode, UsageError


def serve() -> int:
    """Serve the Model Context Protocol on stdin and stdout until the client closes them."""
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("`loop mcp` needs the package `mcp`", hint="pip install 'kernel-loop[mcp]'")
    gc.disable()  # The SDK makes a million objects that stay: collecting meanwhile takes a sixth of the start.
    from loop.driving import server

    gc.freeze()
    gc.enable()
    server.serve()
    return ExitCode.OK

"""The command line: parses arguments, calls a command, turns its result into an exit code.

Begin with `commands`: each command is a function with parameters and help. `command` derives help,
JSON output and MCP tools from that function. Other modules do the work of commands.

Only `main` turns errors into exit codes. A command first ends processes that a killed one left.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import typer

from loop.base.errors import ExitCode, LoopError, MachineFailure, Stopped, UsageError
from loop.base.interrupts import SIGNALS
from loop.base.screen import open_streams
from loop.cli import commands
from loop.cli.command import ALL, app, screen_for

__all__ = ("ALL", "answered", "app", "commands", "main")
WORKERS = "loop.workers.program"
"""The module that starts processes. Before its import, an interrupt has no process to end."""

Answer = TypeVar("Answer")
WRONG_WORDS: Any = typer.BadParameter.__mro__[2]
"""The exception class for unknown commands and options. typer does not export it by name."""


def main() -> None:
    """Run the command line and exit. Expected errors, interrupts and bugs get their exit codes only here."""
    try:
        answered(_called)
    except Stopped as stop:
        if _for_programs():
            _fail(LoopError(str(stop), "run the same command again", exit_code=stop.exit_code))
        sys.exit(stop.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except LoopError as error:
        _fail(error)
        sys.exit(error.exit_code)


def _called() -> None:
    """Run the command that sys.argv names. A wrong word becomes UsageError if the caller asks for JSON."""
    open_streams()
    named = [command for command in ALL if command.words.split()[0] in sys.argv[1:2]]
    if not {"--help", "-h"} & set(sys.argv) and any("device" in command.takes for command in named):
        from loop.base.processes import leave_nothing_behind

        leave_nothing_behind()
        if "--device=cuda" in sys.argv:  # A job needs torch: import it in parallel.
            from loop.workers.nursery import Nursery

            Nursery.early()
        from loop.machine import gpus

        gpus.ask_early()  # The GPU driver answers while we import.
    for name in SIGNALS:
        signal.signal(name, _interrupted)
    try:
        if not _for_programs():
            app()
        sys.exit(app(standalone_mode=False))
    except WRONG_WORDS as error:
        raise UsageError(error.format_message(), f"{_words()} --help") from error
    finally:
        for name in SIGNALS:  # Else a signal kills Python while it exits.
            signal.signal(name, signal.SIG_IGN)


def _for_programs() -> list[str]:
    """Options in sys.argv that ask for JSON: `--json`, `--events`; empty without them."""
    words = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    return [word for word in words if word in ("--json", "--events")]


def _words() -> str:
    """The command that sys.argv names, for messages: `loop kernels verify`."""
    known = (command.words.split() for command in ALL)
    named = [words for words in known if words == sys.argv[1 : 1 + len(words)]]
    return " ".join(["loop", *max(named, key=len, default=[])])


def _fail(error: LoopError) -> None:
    """Print an error to stderr; with `--json` or `--events` also to stdout as JSON."""
    if options := _for_programs():
        import json

        from loop.base.documents import to_json

        text = to_json(error.as_json(_words()))
        with contextlib.suppress(MachineFailure):  # Stdout is closed; stderr still gets the error.
            screen_for().data(json.dumps(json.loads(text)) if options == ["--events"] else text)
    screen_for().fail(error)


def answered(work: Callable[[], Answer]) -> Answer:
    """Call a function and return its result. Turn every exception except BrokenPipeError into a LoopError.

    That is a machine failure, a mistake of the user, or a bug. A bug's traceback goes to a file.
    """
    try:
        return work()
    except BrokenPipeError:
        raise
    except Exception as error:
        from loop.base.machine_failures import Folders, failure_behind

        failure = failure_behind(error, Folders.of())
        if failure is not None:
            raise (
                failure if isinstance(error, MachineFailure) else failure.then("run the same command again")
            ) from error
        if isinstance(error, LoopError):
            raise
        if isinstance(error, FileNotFoundError) and error.filename is None:
            try:
                os.getcwd()
            except FileNotFoundError:
                gone = "the folder in which this was called is gone"
                raise UsageError(gone, "go to one that is there, with `cd`") from error
        what = f"bug in loop: {type(error).__name__}: {error}"
        raise LoopError(what, _log_bug(), exit_code=ExitCode.BUG) from error


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Signal handler: raise Stopped. During an import, exit at once: Python may swallow the exception."""
    while frame is not None and WORKERS not in sys.modules:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(ExitCode.INTERRUPTED)
        frame = frame.f_back
    raise Stopped("interrupted", ExitCode.INTERRUPTED)


def _log_bug() -> str:
    """Write the traceback to a temporary file. Returns a hint that names the file."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="loop-bug-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
    except OSError:
        return f"please report it with this: {traceback.format_exc()}"
    return f"please report it with {file.name}"

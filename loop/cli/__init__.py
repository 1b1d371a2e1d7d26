"""The command line: parses arguments, calls a command, turns its result into an exit code.

Begin with `commands`: each command is a function with parameters and help. `command` derives help,
JSON output and MCP tools from that function. Only `main` turns errors into exit codes.
"""

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

try:
    import typer

    from loop.base.errors import ExitCode, LoopError, MachineFailure, Stopped, UsageError
    from loop.base.places import make_folder_variables_absolute
    from loop.base.processes import SIGNALS, raise_if_signalled, store_signal_number
    from loop.cli import commands
    from loop.cli.command import ALL, build_app, screen_for
    from loop.report.screen import open_streams
except KeyboardInterrupt:  # Imports take a third of a second, in which nothing handles Ctrl-C.
    sys.stderr.write("interrupted\n")
    sys.exit(130)

__all__ = ("ALL", "app", "call_with_loop_errors", "commands", "main")
app = build_app()

WRONG_PATHS = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)  # The user named such a path.
AGAIN = "run the same command again"
Answer = TypeVar("Answer")
UsageErrorOfTyper: Any = typer.BadParameter.__mro__[2]  # Of unknown words; typer hides its name.


def main() -> None:
    """Run the command line and exit. Only here, errors, interrupts and bugs get exit codes."""
    try:
        call_with_loop_errors(_run_command_line)
    except Stopped as stop:
        if _json_options():
            _print_error(LoopError(str(stop), AGAIN, exit_code=stop.exit_code))
        sys.exit(stop.exit_code)
    except BrokenPipeError:  # The reader of stdout is gone, as in `loop report | head`: no error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except LoopError as error:
        _print_error(error)
        sys.exit(error.exit_code)


def _run_command_line() -> None:
    """Run the command that sys.argv names. With `--json`, an unknown word is a UsageError."""
    for name in SIGNALS:
        signal.signal(name, _stop_on_signal)
    open_streams()
    make_folder_variables_absolute()
    is_help = "--help" in sys.argv or "-h" in sys.argv
    likely_commands = [command for command in ALL if command.words.split()[0] in sys.argv[1:2]]
    # A command with --device starts processes, and may use a GPU.
    if not is_help and any("device" in command.parameter_names for command in likely_commands):
        from loop.base.processes import end_children_at_exit

        end_children_at_exit()
        from loop.machine import machine

        machine.start_driver_query()  # The GPU driver answers while we import.
    try:
        if not _json_options():
            app()
        sys.exit(app(standalone_mode=False))
    except UsageErrorOfTyper as error:
        raise UsageError(error.format_message(), f"{_command_text()} --help") from error
    finally:
        for name in SIGNALS:  # Else a signal kills Python while it exits.
            signal.signal(name, signal.SIG_IGN)


def _json_options() -> list[str]:
    """Options in sys.argv that ask for JSON: `--json`, `--events`; empty without them."""
    # Words after `--` belong to a command that `loop` runs.
    words = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    return [word for word in words if word in ("--json", "--events")]


def _command_text() -> str:
    """The command that sys.argv names: `loop kernels verify`; `loop` if it names none."""
    words_of_commands = [command.words.split() for command in ALL]
    matches = [words for words in words_of_commands if words == sys.argv[1 : 1 + len(words)]]
    return " ".join(["loop", *max(matches, key=len, default=[])])


def _print_error(error: LoopError) -> None:
    """Print an error to stderr; with `--json` or `--events` also to stdout as JSON."""
    if options := _json_options():
        from loop.base.documents import to_json

        indent = None if options == ["--events"] else 1  # Each event is one line.
        with contextlib.suppress(MachineFailure):  # Stdout is closed; stderr still gets the error.
            screen_for().data(to_json(error.as_json(_command_text()), indent))
    screen_for().fail(error)


def call_with_loop_errors(work: Callable[[], Answer]) -> Answer:
    """Call a function and return its result. Turn every exception except BrokenPipeError and
    Stopped into a LoopError. A bug's traceback goes to a temporary file, which the hint names."""
    try:
        return work()
    except BrokenPipeError:
        raise
    except Exception as error:
        raise_if_signalled()  # The error may follow from a `Stopped` that a library swallowed.
        from loop.machine.failures import Folders, find_machine_failure

        failure = find_machine_failure(error, Folders.for_process())
        if failure is not None:
            if not isinstance(error, MachineFailure):  # That says itself what to do.
                failure = failure.with_instruction(AGAIN)
            raise failure from error
        if isinstance(error, LoopError):
            raise
        if isinstance(error, OSError) and error.errno in WRONG_PATHS and error.filename:
            message = f"{error.filename!s}: {error.strerror}"
            raise UsageError(message, "name another path") from error
        if isinstance(error, FileNotFoundError) and error.filename is None:  # As by os.getcwd.
            try:
                os.getcwd()
            except FileNotFoundError:
                message = "the folder in which this was called is gone"
                raise UsageError(message, "go to one that is there, with `cd`") from error
        import tempfile
        import traceback

        hint = f"please report it with this: {traceback.format_exc()}"
        with contextlib.suppress(OSError):
            descriptor, path = tempfile.mkstemp(prefix="loop-bug-", suffix=".txt", text=True)
            with os.fdopen(descriptor, "w") as file:
                traceback.print_exc(file=file)
            hint = f"please report it with {path}"
        message = f"bug in loop: {type(error).__name__}: {error}"
        raise LoopError(message, hint, exit_code=ExitCode.BUG) from error


def _stop_on_signal(number: int, frame: FrameType | None) -> None:
    """Signal handler: raise Stopped. During an import, exit at once: Python may swallow the
    exception. So may pydantic, which calls a valid file invalid then: the noted signal tells."""
    store_signal_number(number)
    # Until `loop.workers.program` is imported, no process was started that has to be ended.
    while frame is not None and "loop.workers.program" not in sys.modules:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(ExitCode.INTERRUPTED)
        frame = frame.f_back
    raise Stopped("interrupted", ExitCode.INTERRUPTED)

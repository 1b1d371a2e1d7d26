"""The one error family: what went wrong, where, and what to do next."""

import contextlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from typing_extensions import TypedDict


class ExitCode(IntEnum):
    """What the process says when it ends."""

    OK = 0
    GATE_FAILED = 1
    USAGE = 2
    BUG = 3
    PAUSED = 75
    OVER_BUDGET = 124
    CANNOT_TELL = 125
    INTERRUPTED = 130


EXIT_CODES: dict[int | None, str] = {
    ExitCode.OK: "all gates passed",
    ExitCode.GATE_FAILED: "a gate failed",
    ExitCode.USAGE: "wrong usage or definition",
    ExitCode.BUG: "a bug in `loop`",
    ExitCode.PAUSED: "paused, also by a full disk; it can be resumed",
    ExitCode.OVER_BUDGET: "out of budget",
    ExitCode.CANNOT_TELL: "a job was begun too often and never ended",
    ExitCode.INTERRUPTED: "interrupted",
}
ErrorCode = Literal[
    "usage", "definition", "untrusted", "held", "failed", "cannot-start", "machine", "limit", "interrupted", "bug"
]
ERROR_CODES: dict[ErrorCode, str] = {
    "usage": "an argument, a name, a file or a folder is wrong; `next` says which words are right",
    "definition": "a YAML file is wrong; the message has file, line and column",
    "untrusted": "a person has to look at what would run, and allow it with the command in `next`",
    "held": "another `loop` works there; wait for it, or stop it",
    "failed": "the request makes sense, and the work failed: a build, a program, a damaged record",
    "cannot-start": "there is no such program, or it may not be run",
    "machine": "the disk is full, or memory is short; mend that, then run the command in `next`",
    "limit": "out of budget",
    "interrupted": "a signal ended it; the same command again goes on or begins anew",
    "bug": "a bug in `loop`; `next` names the file to report",
}
"""What each code of an error means: `error.code` in the JSON of a command that failed."""
CODES: dict[int, ErrorCode] = {
    ExitCode.USAGE: "usage",
    ExitCode.BUG: "bug",
    ExitCode.PAUSED: "machine",
    ExitCode.OVER_BUDGET: "limit",
    ExitCode.INTERRUPTED: "interrupted",
}
"""The code of an error that has no class of its own, by its exit code; `failed` for any other."""


class Failed(TypedDict):
    """What a command that failed prints with `--json`; what it found all the same stands beside `error`."""

    schema_version: int
    error: dict[str, str | int]
    """`code`, `message`, `next` and `exit_code`."""


class LoopError(Exception):
    """Something a user can mend. Anything else is a bug, and crashes.

    Each raise says what the process returns: by one of the three classes below, or by an exit code of its own.
    """

    def __init__(self, message: str, hint: str | None = None, *, exit_code: int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        """What to do next."""
        self.exit_code = int(exit_code)
        self.found: Mapping[str, object] = {}
        """What a command found all the same; it stands beside the error in its JSON."""

    mend = ""
    """What to do next where nobody said more."""

    @property
    def code(self) -> ErrorCode:
        """What programs read of it."""
        return CODES.get(self.exit_code, "failed")

    def as_json(self, again: str) -> dict[str, object]:
        """What a command that failed prints for programs; `again`: its words, whose help is the last resort."""
        error = {
            "code": self.code,
            "message": self.message,
            "next": self.hint or self.mend or f"{again} --help",
            "exit_code": self.exit_code,
        }
        return {"schema_version": 1, **self.found, "error": error}


class UsageError(LoopError):
    """What the user gave is wrong: an argument, a name, a definition, a file or folder that they named."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint, exit_code=ExitCode.USAGE)


class WorkFailed(LoopError):
    """What the user asked for makes sense, and failed: a build, a program, a write, a damaged record."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint, exit_code=ExitCode.GATE_FAILED)


class MachineFailure(LoopError):
    """The machine failed, not the target: a full disk, no memory. The work is paused; once mended, it goes on."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint, exit_code=ExitCode.PAUSED)

    def then(self, words: str) -> "MachineFailure":
        """The same, with what to do once it is mended."""
        return MachineFailure(self.message, f"{self.hint}; then {words}")


class CannotStart(WorkFailed):
    """There is no such program, or it may not be run; its cause is the OSError."""

    code: ErrorCode = "cannot-start"


class Untrusted(UsageError):
    """Definitions, or a stored session, run commands and code that the user has not allowed yet."""

    code: ErrorCode = "untrusted"


@dataclass(frozen=True)
class Complaint:
    """One mistake in a definition, and where it is."""

    file: str
    line: int
    column: int
    path: str
    """Dotted path of the value, as in `steps.0.budget_s`; empty for the whole file."""
    expected: str
    got: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: "
        path = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{path}expected {self.expected}, got {self.got}{hint}"


def one_of(names: Iterable[str], nothing: str) -> str:
    """What could stand there, in words; `nothing`: what to say where no name could."""
    listed = ", ".join(names)
    return f"one of {listed}" if listed else nothing


class DefinitionError(UsageError):
    """A YAML definition is not what it has to be: all complaints at once."""

    code: ErrorCode = "definition"
    mend = "mend the file at that line; `loop patterns check FILE` checks it again"
    SHOWN = 20

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        lines = [str(complaint) for complaint in complaints[: self.SHOWN]]
        if len(complaints) > self.SHOWN:
            lines.append(f"... and {len(complaints) - self.SHOWN} more")
        super().__init__("\n".join(lines))
        self.complaints = tuple(complaints)


class Stopped(BaseException):
    """The walk has to end now: interrupted by the user or the system, or out of time. Never caught by a step.

    No Exception, like KeyboardInterrupt: a library that goes on after every Exception would go on after Ctrl-C.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)


ESCAPES = r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
"""Sequences that begin with ESC (ECMA-48): colours and cursor (CSI), titles and links (OSC), short ones."""
ACTED_ON = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
"""Controls, and marks that change the direction of what follows (Unicode TR 9); line ends and tabs are none."""
_ACTS = re.compile(rf"{ESCAPES}|{ACTED_ON}|\r(?!\n)|[\ud800-\udfff]")


def without_escapes(text: str) -> str:
    """`text` without escape sequences, a space for every other character that a terminal would act on.

    Bytes that were no UTF-8, such as those of a file's name, become U+FFFD: what is printed is UTF-8 throughout.
    """
    if text.isprintable():  # Most of what is shown is, and that is told quickly.
        return text

    def harmless(match: re.Match[str]) -> str:
        if len(match[0]) > 1:
            return ""
        return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else " "

    return _ACTS.sub(harmless, text)


_SAID: set[str] = set()


def remark_once(text: str) -> None:
    """A line on standard error, the first time that this process says it."""
    if text in _SAID:
        return
    _SAID.add(text)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # Nobody may be there to read it.
        sys.stderr.write(f"loop: {without_escapes(text)}\n")
        sys.stderr.flush()


def forget_remarks() -> None:
    """Say everything anew: another command begins in this process."""
    _SAID.clear()

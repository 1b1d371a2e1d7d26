"""The one error family: what went wrong, where, and what to do next."""

import contextlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from typing_extensions import TypedDict

ErrorCode = Literal[
    "usage", "definition", "untrusted", "held", "failed", "cannot-start", "machine", "limit",
    "interrupted", "bug",
]  # fmt: skip
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
"""Meaning of each `error.code` in the JSON of a failed command."""


class ExitCode(IntEnum):
    """Exit codes of the `loop` process, their meaning, and the code of errors that have none."""

    OK = 0, "all gates passed, or there was nothing to do", "failed"
    GATE_FAILED = 1, "a gate failed", "failed"
    USAGE = 2, "wrong usage or definition", "usage"
    BUG = 3, "a bug in `loop`", "bug"
    PAUSED = 75, "paused, also by a full disk; it can be resumed", "machine"
    OVER_BUDGET = 124, "out of budget", "limit"
    CANNOT_TELL = 125, "a job was begun too often and never ended", "failed"
    INTERRUPTED = 130, "interrupted", "interrupted"

    meaning: str
    error_code: ErrorCode

    def __new__(cls, number: int, meaning: str, error_code: ErrorCode) -> "ExitCode":
        """Called for each line above."""
        member = int.__new__(cls, number)
        member._value_, member.meaning, member.error_code = number, meaning, error_code
        return member


class Failed(TypedDict):
    """JSON of a failed command with `--json`. Partial results are further fields beside `error`."""

    schema_version: int
    error: dict[str, str | int]  # `code`, `message`, `next` and `exit_code`.


class LoopError(Exception):
    """An error that the user can fix. Any other exception is a bug and crashes."""

    exit_code: int = ExitCode.GATE_FAILED  # Exit code of the process; each subclass has its own.
    default_hint = ""  # Hint of the class, for errors without one.

    def __init__(self, message: str, hint: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint  # What to do next.
        self.exit_code = int(self.exit_code if exit_code is None else exit_code)
        self.partial_results: Mapping[str, object] = {}
        """Partial results of the failed command; its JSON has them next to the error."""

    @property
    def code(self) -> ErrorCode:
        """The error code for programs, such as `usage`."""
        return next((known.error_code for known in ExitCode if known == self.exit_code), "failed")

    def as_json(self, command: str) -> dict[str, object]:
        """The JSON of a failed command. `next`: its hint, its class's, or `command --help`."""
        error = {
            "code": self.code,
            "message": self.message,
            "next": self.hint or self.default_hint or f"{command} --help",
            "exit_code": self.exit_code,
        }
        return {"schema_version": 1, **self.partial_results, "error": error}


class UsageError(LoopError):
    """The user's input is wrong: an argument, a name, a definition, a file or a folder."""

    exit_code = ExitCode.USAGE


class WorkFailed(LoopError):
    """The request is valid but the work failed: a build, a program, a write, a damaged record."""


class MachineFailure(LoopError):
    """The machine failed, not the target: full disk, no memory. A session pauses then."""

    exit_code = ExitCode.PAUSED

    def with_instruction(self, instruction: str) -> "MachineFailure":
        """The same error, with `instruction` added to its hint: what to do after the fix."""
        return MachineFailure(self.message, f"{self.hint}; then {instruction}")


class CannotStart(WorkFailed):
    """A program is missing or may not be run. `__cause__` is the OSError."""

    code: ErrorCode = "cannot-start"


class Untrusted(UsageError):
    """Definitions or a stored session contain commands or code that the user has not allowed."""

    code: ErrorCode = "untrusted"


@dataclass(frozen=True)
class Complaint:
    """One mistake in a definition file, with its position."""

    file: str
    line: int
    column: int
    path: str  # Dotted path of the value, as in `steps.0.budget_s`; empty for the whole file.
    expected: str
    got: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: "
        path = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}{path}expected {self.expected}, got {self.got}{hint}"


class DefinitionError(UsageError):
    """A YAML definition has mistakes. `complaints` has all, the message the first `MAX_SHOWN`."""

    code: ErrorCode = "definition"
    default_hint = "mend the file at that line; `loop patterns check FILE` checks it again"
    MAX_SHOWN = 20

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        lines = [str(complaint) for complaint in complaints[: self.MAX_SHOWN]]
        if len(complaints) > self.MAX_SHOWN:
            lines.append(f"... and {len(complaints) - self.MAX_SHOWN} more")
        super().__init__("\n".join(lines))
        self.complaints = tuple(complaints)


class Stopped(BaseException):
    """The session must end now. No `Exception`, like KeyboardInterrupt: so nothing swallows it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = int(exit_code)


ESCAPE_SEQUENCES = r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])"
"""Sequences that begin with ESC (ECMA-48): colours and cursor (CSI), titles and links (OSC)."""
CONTROL_CHARACTERS = "[\x00-\x08\v\f\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
"""Control characters and direction marks (Unicode TR 9), except line ends and tabs."""
_UNPRINTABLE = re.compile(rf"{ESCAPE_SEQUENCES}|{CONTROL_CHARACTERS}|\r(?!\n)|[\ud800-\udfff]")
PRINTED_REMARKS: set[str] = set()  # Texts that `remark_once` has printed in this process.


def remove_escapes(text: str) -> str:
    """`text` as a terminal may print it: valid UTF-8 without escape or control characters."""
    if text.isprintable():  # Fast path for most texts.
        return text

    def replacement(match: re.Match[str]) -> str:
        if len(match[0]) > 1:
            return ""
        return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else " "

    return _UNPRINTABLE.sub(replacement, text)


def remark_once(text: str) -> None:
    """Print a line on standard error, each text once per process. A closed stream is no error."""
    if text in PRINTED_REMARKS:
        return
    PRINTED_REMARKS.add(text)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # The stream may be closed.
        sys.stderr.write(f"loop: {remove_escapes(text)}\n")
        sys.stderr.flush()

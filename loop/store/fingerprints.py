"""The failures in a session's records, by what is left of an error when all that differs from run to run is gone.

Paths, places in files, addresses, numbers, hashes, dates, quotes, shapes and colours go. What the compiler, the
linker, CUDA, git or Python call the error stays, and so do the names of symbols, headers and GPUs.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loop.base.processes import describe_exit
from loop.model.index import FailureSeen
from loop.model.measurement import Check, VariantChecks
from loop.model.output import CommandOutput, VerifyOutput, read_output
from loop.model.record import Finished

READ = 200_000
"""Characters at either end of a text that are looked at: what lies between is output, not an error."""
LONGEST_LINE = 600
"""Characters of one line that are looked at."""
LONGEST = 160
"""Characters of a fingerprint."""
KEY = 12
"""Letters of its hash."""

TELLING = (
    *("undefined symbol", "undefined reference", "multiple definition", "cannot find -l", "error:", "error :"),
    *("fatal:", "fatal   :", "cuda error", "cudaerror", "cuda_error", "no kernel image", "driver version"),
    *("needs driver", "out of memory", "bad_alloc", "memoryerror", "killed after", "timed out", "crashed with"),
    *("segmentation fault", "no such file", "not found", "permission denied", "no space left", "assertion"),
    "cannot open shared object",
)
"""Words by which the line that names an error is known."""
NOISE = (
    *(": in function", "collect2: error", "compilation terminated", "warning:", "note:", "error(s) generated"),
    *("errors generated", "error generated", "error detected in the", "errors detected in the"),
)
"""Lines that have such words, and only go with an error."""
EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Warning)(?::|$)")
"""Python's last word."""

COLOUR = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f]")
PLACE = re.compile(r"[^\s:()]+(?:\(\d+\)|(?::\d+){1,2}|:\(\.[^)\s]*\)):\s+")
"""`file:12:3: `, `file(12): `, `file.o:(.text+0xa): `: where it was, not what."""
LABEL = re.compile(
    r"(?<![\w.])(?:catastrophic |fatal |internal compiler )?error *(?:#\d+(?:-D)?)? *: *", re.IGNORECASE
)
SUGGESTION = re.compile(r"[;,?]? *did you mean .*")
QUOTES = re.compile("[`\u2018\u2019\u201c\u201d\"]|(?<!\\w)'|'(?!\\w)")
DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?:[T -]\d\d:?\d\d:?\d\d(?:\.\d+)?Z?)?")
IDENTITY = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b")
HASH = re.compile(r"\b[0-9a-f]{7,64}\b")
FILE = re.compile(r"[^\s:;,()<>=|]*/[^\s:;,()<>=|]*")
TEMPORARY = re.compile(r"\b(?:tmp(?:xft)?_?[A-Za-z0-9_-]{6,}|cc[A-Za-z0-9]{6}(?=\.))(?:\.\w+)*")
SHAPE = re.compile(r"\b[A-Z][a-z]?=?\d+(?: [A-Z][a-z]?=?\d+)+")
NUMBER = re.compile(r"(?<![\w.])(exit |status |code |error |signal )?[-+]?\d[\d.,]*(?:e[-+]?\d+)?")
REPEATED = re.compile(r"\bN(?:[ ,x/:-]{1,3}N\b)+")
ANCHORS = ("undefined symbol: ", "undefined reference to ", "multiple definition of ", "cannot find -l", "fatal: ")
"""Where an error begins: what stands before says who met it, and in which file."""
MEMORY = (
    "out of memory",
    "out_of_memory",
    "cudaerrormemoryallocation",
    "bad_alloc",
    "memoryerror",
    "cannot allocate",
)
"""How programs, libraries and drivers say that there was no memory left."""
HEADERS = (".h", ".hpp", ".hh", ".cuh", ".so", ".a", ".inc")
"""Files whose name says what is missing, wherever they lie."""
PROGRAMS = (
    "sh",
    "bash",
    "ld",
    "nvcc",
    "g++",
    "gcc",
    "clang",
    "clang++",
    "ptxas",
    "cc1plus",
    "cicc",
    "nvlink",
    "git",
)


@dataclass(frozen=True)
class Fingerprint:
    """What failed, in words that are the same the next time."""

    text: str
    subject: str = ""
    """The variant that failed, where others in the same step may be right."""

    @property
    def key(self) -> str:
        """Hash of the words."""
        return hashlib.sha256(self.text.encode(errors="backslashreplace")).hexdigest()[:KEY]


def fingerprint(text: str) -> Fingerprint:
    """The fingerprint of an error text, of whatever length."""
    return Fingerprint(normal(telling_line(text)) or "no message")


def telling_line(text: str) -> str:
    """The line that names the error; the last one where none does."""
    lines = [line[:LONGEST_LINE].strip() for line in _ends(text).splitlines()]
    for line in lines:
        if tells(line):
            return line
    return next((line for line in reversed(lines) if line), "")


def _ends(text: str) -> str:
    return text if len(text) <= 2 * READ else f"{text[:READ]}\n{text[-READ:]}"


def tells(line: str) -> bool:
    """Whether a line names an error."""
    low = line.lower()
    if any(words in low for words in NOISE):
        return False
    return any(words in low for words in TELLING) or EXCEPTION.match(line) is not None


def normal(line: str) -> str:
    """One line without what differs from machine to machine and from run to run."""
    text = COLOUR.sub("", line[:LONGEST_LINE])
    low = text.lower()
    if any(words in low for words in MEMORY):
        return "CUDA out of memory" if "cuda" in low else "out of memory"
    text = _without_place(text)
    text = SUGGESTION.sub("", LABEL.sub("", text))
    text = DATE.sub("N", IDENTITY.sub("ADDRESS", QUOTES.sub("", text)))
    text = TEMPORARY.sub("TEMPORARY", FILE.sub(_file, text))
    text = SHAPE.sub("SHAPE", HASH.sub(_hash, text))
    text = REPEATED.sub("N", NUMBER.sub(_number, text))
    return " ".join(text.split())[:LONGEST].rstrip(" .")


def _without_place(text: str) -> str:
    """Without what stands before the error: the last place in a file, the variant, the program that met it."""
    end = 0
    for match in PLACE.finditer(text):
        end = match.end()
    text = text[end:] or text
    begins = [text.find(words) for words in ANCHORS if words in text]
    return text[min(begins) :] if begins else text


def _file(found: re.Match[str]) -> str:
    """The name of a header, a library or a program; for other paths a word; what only has a slash stays."""
    text = found[0]
    if not (text.startswith(("/", "./", "../", "~/")) or text.count("/") > 1 or "." in text.rpartition("/")[2]):
        return text
    name = text.rstrip("/.").rpartition("/")[2]
    name = name.partition(".so")[0] + ".so" if ".so" in name else name
    stable = name.endswith(HEADERS) and not TEMPORARY.search(name)
    return name if stable or name in PROGRAMS else "PATH"


def _hash(found: re.Match[str]) -> str:
    text = found[0]
    return "HASH" if any(c.isdigit() for c in text) and any(c.isalpha() for c in text) else text


def _number(found: re.Match[str]) -> str:
    """Codes of errors and exits say what failed; other numbers say when and where."""
    return found[0].rstrip(".,") if found[1] else "N" + ("" if found[0][-1].isdigit() else found[0][-1])


KEPT = 400
"""Characters of a message that the index keeps."""


def failures_of(session: str, finished: Iterable[Finished]) -> tuple[FailureSeen, ...]:
    """The failures of a session, each fingerprint once a step: of all attempts, those before a fresh start too."""
    ended = list(finished)
    found: dict[tuple[str, str, str], FailureSeen] = {}
    for index, record in enumerate(ended):
        for fingerprint in of_step(record) if record.status == "failed" else ():
            gone = any(_gets_past(later, record, fingerprint) for later in ended[index + 1 :])
            found[(record.pattern, record.step, fingerprint.key)] = FailureSeen(
                signature=fingerprint.text,
                key=fingerprint.key,
                subject=fingerprint.subject,
                pattern=record.pattern,
                step=record.step,
                message=record.message[:KEPT],
                hint=(record.hint or "")[:KEPT],
                cured_by=session if gone else None,
            )
    return tuple(found.values())


def of_step(record: Finished) -> tuple[Fingerprint, ...]:
    """What failed in a step that failed."""
    checked = read_output(record, VerifyOutput)
    if checked:
        wrong = tuple(_wrong((checked.control, *checked.variants)))
        if wrong:
            return wrong
    if record.killed:
        return (Fingerprint(f"{record.action}: over its limit"),)
    command = read_output(record, CommandOutput)
    if command:
        return (_of_command(command) or fingerprint(record.message),)
    return (fingerprint(record.message),)


def _of_command(output: CommandOutput) -> Fingerprint | None:
    """The line that names the error; where none does, how it ended and the last thing it said. None at a gate."""
    how, line = describe_exit(output.code), telling_line(output.output)
    if tells(line):
        return Fingerprint(normal(line))
    return Fingerprint(f"{how}: {normal(line)}" if line else how) if output.code else None


def _wrong(checks: Iterable[VariantChecks | None]) -> Iterator[Fingerprint]:
    """A variant by the kind of its failure: how many elements, and by how much, differs from run to run."""
    for variant_checks in checks:
        failure = variant_checks.first_failure if variant_checks else None
        if variant_checks is not None and failure is not None:
            yield Fingerprint(f"{variant_checks.variant} {_kind(failure)}", variant_checks.variant)


def _kind(failure: Check) -> str:
    if failure.status == "wrong":
        return "wrong" if failure.wrong else "inexact"
    if failure.status == "tampered":
        return failure.status
    return f"{failure.status}: {normal(failure.fault.text if failure.fault else failure.message)}"


def _gets_past(later: Finished, record: Finished, failed: Fingerprint) -> bool:
    """Whether a later attempt no longer fails so; where others fail, a variant may be right by itself."""
    if (later.pattern, later.step) != (record.pattern, record.step):
        return False
    if later.status == "passed":
        return True
    subjects = {fingerprint.subject for fingerprint in of_step(later)} if later.status == "failed" else {""}
    return bool(failed.subject) and "" not in subjects and failed.subject not in subjects

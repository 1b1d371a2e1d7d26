"""The failures in a session's records, by what is left of an error when all that differs from run to run is gone.

Paths, places in files, addresses, numbers, hashes, dates, quotes, shapes and colours go. What the compiler, the
linker, CUDA, git or Python call the error stays, and so do the names of symbols, headers and GPUs.
"""

import re
from collections.abc import Callable, Iterable

from loop.base.processes import describe_exit
from loop.model.index import FailureSeen
from loop.model.output import CommandOutput, VerifyOutput, read_output
from loop.model.record import Finished

READ = 200_000
"""Characters at either end of a text that are looked at: what lies between is output, not an error."""
LONGEST_LINE = 600
"""Characters of one line that are looked at."""
LONGEST = 160
"""Characters of a fingerprint."""

TELLING = re.compile(
    "undefined symbol|undefined reference|multiple definition|cannot find -l|error ?:|fatal ?  :|fatal:"
    "|cuda ?_?error|no kernel image|driver version|needs driver|out of memory|bad_alloc|memoryerror|killed after"
    "|timed out|crashed with|segmentation fault|no such file|not found|permission denied|no space left|assertion"
    "|cannot open shared object",
    re.IGNORECASE,
)
"""Words by which the line that names an error is known."""
NOISE = re.compile(
    ": in function|collect2: error|compilation terminated|warning:|note:|errors? generated|error\\(s\\) generated"
    "|errors? detected in the",
    re.IGNORECASE,
)
"""Lines that have such words, and only go with an error."""
EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Warning)(?::|$)")
"""Python's last word."""

MEMORY = re.compile(
    "out of memory|out_of_memory|cudaerrormemoryallocation|bad_alloc|memoryerror|cannot allocate", re.IGNORECASE
)
"""How programs, libraries and drivers say that there was no memory left."""
COLOUR = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f]")
PLACE = re.compile(r"[^\s:()]+(?:\(\d+\)|(?::\d+){1,2}|:\(\.[^)\s]*\)):\s+")
"""`file:12:3: `, `file(12): `, `file.o:(.text+0xa): `: where it was, not what."""
ANCHOR = re.compile("undefined symbol: |undefined reference to |multiple definition of |cannot find -l|fatal: ")
"""Where an error begins: what stands before says who met it, and in which file."""
TEMPORARY = re.compile(r"\b(?:tmp(?:xft)?_?[A-Za-z0-9_-]{6,}|cc[A-Za-z0-9]{6}(?=\.))(?:\.\w+)*")
STABLE = re.compile(
    r".*\.(?:h|hpp|hh|cuh|so|a|inc)|sh|bash|ld|nvcc|g\+\+|gcc|clang(\+\+)?|ptxas|cc1plus|cicc|nvlink|git"
)
"""Headers, libraries and programs: their name says what is missing or failed, wherever they lie."""
KEPT = 400
"""Characters of a message that the index keeps."""


def _file(match: re.Match[str]) -> str:
    """The name of a header, a library or a program; for other paths a word; what only has a slash stays."""
    text = match[0]
    is_path = text.startswith(("/", "./", "../", "~/")) or text.count("/") > 1
    if not is_path and "." not in text.rpartition("/")[2]:
        return text
    name = text.rstrip("/.").rpartition("/")[2]
    name = name.partition(".so")[0] + ".so" if ".so" in name else name
    return name if STABLE.fullmatch(name) and not TEMPORARY.search(name) else "PATH"


def _hash(match: re.Match[str]) -> str:
    """A word for letters and digits; a word of letters alone, and a number, stay."""
    letters = set(map(str.isalpha, match[0]))
    return "HASH" if len(letters) == 2 else match[0]


def _number(match: re.Match[str]) -> str:
    """Codes of errors and exits say what failed; other numbers say when and where."""
    return match[0].rstrip(".,") if match[1] else "N" + ("" if match[0][-1].isdigit() else match[0][-1])


VARYING: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?<![\w.])(?:catastrophic |fatal |internal compiler )?error *(?:#\d+(?:-D)?)? *: *", re.I), ""),
    (re.compile(r"[;,?]? *did you mean .*"), ""),
    (re.compile("[`\u2018\u2019\u201c\u201d\"]|(?<!\\w)'|'(?!\\w)"), ""),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b"), "ADDRESS"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T -]\d\d:?\d\d:?\d\d(?:\.\d+)?Z?)?"), "N"),
    (re.compile(r"[^\s:;,()<>=|]*/[^\s:;,()<>=|]*"), _file),
    (TEMPORARY, "TEMPORARY"),
    (re.compile(r"\b[0-9a-f]{7,64}\b"), _hash),
    (re.compile(r"\b[A-Z][a-z]?=?\d+(?: [A-Z][a-z]?=?\d+)+"), "SHAPE"),
    (re.compile(r"(?<![\w.])(exit |status |code |error |signal )?[-+]?\d[\d.,]*(?:e[-+]?\d+)?"), _number),
    (re.compile(r"\bN(?:[ ,x/:-]{1,3}N\b)+"), "N"),
)
"""What differs from run to run, in the order in which it goes: an address before a number."""


def fingerprint(text: str) -> FailureSeen:
    """The fingerprint of an error text, of whatever length."""
    return FailureSeen.of(normal_line(telling_line(text)) or "no message")


def telling_line(text: str) -> str:
    """The line that names the error; the last one where none does."""
    ends = text if len(text) <= 2 * READ else f"{text[:READ]}\n{text[-READ:]}"
    lines = [line[:LONGEST_LINE].strip() for line in ends.splitlines()]
    for line in lines:
        if names_error(line):
            return line
    return next((line for line in reversed(lines) if line), "")


def names_error(line: str) -> bool:
    """Whether a line names an error."""
    return not NOISE.search(line) and bool(TELLING.search(line) or EXCEPTION.match(line))


def normal_line(line: str) -> str:
    """One line without what differs from machine to machine and from run to run."""
    text = COLOUR.sub("", line[:LONGEST_LINE])
    if MEMORY.search(text):
        return "CUDA out of memory" if "cuda" in text.lower() else "out of memory"
    # What stands before the error goes: the last place in a file, the variant, the program that met it.
    places = [match.end() for match in PLACE.finditer(text)]
    text = text[places[-1] :] or text if places else text
    begin = ANCHOR.search(text)
    text = text[begin.start() :] if begin else text
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return " ".join(text.split())[:LONGEST].rstrip(" .")


def failures_of(session: str, finished: Iterable[Finished]) -> tuple[FailureSeen, ...]:
    """The failures of a session, each fingerprint once a step: of all attempts, those before a fresh start too."""
    ended = list(finished)
    failures: dict[tuple[str, str, str], FailureSeen] = {}
    for index, record in enumerate(ended):
        for failed in of_step(record) if record.status == "failed" else ():
            gone = any(_gets_past(later, record, failed) for later in ended[index + 1 :])
            facts = {"pattern": record.pattern, "step": record.step, "message": record.message[:KEPT]}
            cure = {"hint": (record.hint or "")[:KEPT], "cured_by": session if gone else None}
            update = {**facts, **cure}
            failures[record.pattern, record.step, failed.key] = failed.model_copy(update=update)
    return tuple(failures.values())


def of_step(record: Finished) -> tuple[FailureSeen, ...]:
    """What failed in a step that failed."""
    verified = read_output(record, VerifyOutput)
    wrong = []
    for checks in (verified.control, *verified.variants) if verified else ():
        # By the kind of its failure: how many elements, and by how much, differs from run to run.
        if checks is not None and (failure := checks.first_failure) is not None:
            kind = f"{failure.status}: {normal_line(failure.fault.text if failure.fault else failure.message)}"
            if failure.status in ("wrong", "tampered"):
                kind = "inexact" if failure.status == "wrong" and not failure.wrong else failure.status
            wrong.append(FailureSeen.of(f"{checks.variant} {kind}", checks.variant))
    if wrong:
        return tuple(wrong)
    if record.killed:
        return (FailureSeen.of(f"{record.action}: over its limit"),)
    command = read_output(record, CommandOutput)
    line = telling_line(command.output) if command else ""
    if command and names_error(line):
        return (FailureSeen.of(normal_line(line)),)
    if command and command.code:  # No line names the error: how it ended, and the last thing it said.
        how = describe_exit(command.code)
        return (FailureSeen.of(f"{how}: {normal_line(line)}" if line else how),)
    return (fingerprint(record.message),)


def _gets_past(later: Finished, record: Finished, failed: FailureSeen) -> bool:
    """Whether a later attempt no longer fails so; where others fail, a variant may be right by itself."""
    if (later.pattern, later.step) != (record.pattern, record.step):
        return False
    if later.status == "passed":
        return True
    subjects = {other.subject for other in of_step(later)} if later.status == "failed" else {""}
    return bool(failed.subject) and "" not in subjects and failed.subject not in subjects

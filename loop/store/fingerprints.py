"""Error fingerprints: recognise the same failure in another session or on another machine.

A fingerprint drops paths, line numbers, addresses, numbers, hashes, dates, quotes, shapes, colours. It
keeps the error name of compiler, linker, CUDA, git or Python, and names of symbols, headers and GPUs.
"""

import re
from collections.abc import Callable, Iterable

from loop.base.processes import describe_exit
from loop.model.index import FailureSeen
from loop.model.output import CommandOutput, VerifyOutput, read_output
from loop.model.record import Finished

READ = 200_000
"""Characters examined at each end of a text. Errors stand near the ends."""
LONGEST_LINE = 600
"""Characters examined of one line."""
LONGEST = 160
"""Maximum length of a fingerprint in characters."""

TELLING = re.compile(
    "undefined symbol|undefined reference|multiple definition|cannot find -l|error ?:|fatal ?  :|fatal:"
    "|cuda ?_?error|no kernel image|driver version|needs driver|out of memory|bad_alloc|memoryerror|killed after"
    "|timed out|crashed with|segmentation fault|no such file|not found|permission denied|no space left|assertion"
    "|cannot open shared object",
    re.IGNORECASE,
)
"""Words that mark the line that names the error."""
NOISE = re.compile(
    ": in function|collect2: error|compilation terminated|warning:|note:|errors? generated|error\\(s\\) generated"
    "|errors? detected in the",
    re.IGNORECASE,
)
"""Lines that contain such words but only accompany the real error line."""
EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Warning)(?::|$)")
"""The last line of a Python traceback."""

MEMORY = re.compile(
    "out of memory|out_of_memory|cudaerrormemoryallocation|bad_alloc|memoryerror|cannot allocate", re.IGNORECASE
)
"""Out-of-memory messages of programs, libraries and drivers."""
COLOUR = re.compile(r"\x1b\[[0-9;?]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f]")
PLACE = re.compile(r"[^\s:()]+(?:\(\d+\)|(?::\d+){1,2}|:\(\.[^)\s]*\)):\s+")
"""Source positions: `file:12:3: `, `file(12): `, `file.o:(.text+0xa): `."""
ANCHOR = re.compile("undefined symbol: |undefined reference to |multiple definition of |cannot find -l|fatal: ")
"""Where the error text begins. The text before names only the program and the file."""
TEMPORARY = re.compile(r"\b(?:tmp(?:xft)?_?[A-Za-z0-9_-]{6,}|cc[A-Za-z0-9]{6}(?=\.))(?:\.\w+)*")
STABLE = re.compile(
    r".*\.(?:h|hpp|hh|cuh|so|a|inc)|sh|bash|ld|nvcc|g\+\+|gcc|clang(\+\+)?|ptxas|cc1plus|cicc|nvlink|git"
)
"""Headers, libraries and programs. A fingerprint keeps their file names and drops the folder."""
KEPT = 400
"""Characters of a message stored in the index."""


def _file(match: re.Match[str]) -> str:
    """Replace a path: headers, libraries and programs by their name, others by `PATH`."""
    text = match[0]
    is_path = text.startswith(("/", "./", "../", "~/")) or text.count("/") > 1
    if not is_path and "." not in text.rpartition("/")[2]:
        return text
    name = text.rstrip("/.").rpartition("/")[2]
    name = name.partition(".so")[0] + ".so" if ".so" in name else name
    return name if STABLE.fullmatch(name) and not TEMPORARY.search(name) else "PATH"


def _hash(match: re.Match[str]) -> str:
    """`HASH` for a match that mixes letters and digits; other matches stay unchanged."""
    letters = set(map(str.isalpha, match[0]))
    return "HASH" if len(letters) == 2 else match[0]


def _number(match: re.Match[str]) -> str:
    """`N` for a number. Error and exit codes stay, because they say what failed."""
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
"""Patterns that differ from run to run, with replacements. Order matters: addresses before numbers."""


def fingerprint(text: str) -> FailureSeen:
    """The fingerprint of an error text of any length: its telling line in normal form."""
    return FailureSeen.from_fingerprint(normal_line(telling_line(text)) or "no message")


def telling_line(text: str) -> str:
    """The first line that names an error; the last non-empty line if none does; else empty."""
    ends = text if len(text) <= 2 * READ else f"{text[:READ]}\n{text[-READ:]}"
    lines = [line[:LONGEST_LINE].strip() for line in ends.splitlines()]
    for line in lines:
        if names_error(line):
            return line
    return next((line for line in reversed(lines) if line), "")


def names_error(line: str) -> bool:
    """Whether a line names an error, and does not only accompany one (`compilation terminated`)."""
    return not NOISE.search(line) and bool(TELLING.search(line) or EXCEPTION.match(line))


def normal_line(line: str) -> str:
    """Normal form of a line: everything that differs between machines or runs is replaced."""
    text = COLOUR.sub("", line[:LONGEST_LINE])
    if MEMORY.search(text):
        return "CUDA out of memory" if "cuda" in text.lower() else "out of memory"
    # Cut what precedes the error: source position, variant, program.
    places = [match.end() for match in PLACE.finditer(text)]
    text = text[places[-1] :] or text if places else text
    begin = ANCHOR.search(text)
    text = text[begin.start() :] if begin else text
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return " ".join(text.split())[:LONGEST].rstrip(" .")


def failures_of(session: str, finished: Iterable[Finished]) -> tuple[FailureSeen, ...]:
    """Failures of a session, one per step and fingerprint, also from before a fresh start."""
    ended = list(finished)
    failures: dict[tuple[str, str, str], FailureSeen] = {}
    for index, record in enumerate(ended):
        for failed in fingerprints_of_step(record) if record.status == "failed" else ():
            gone = any(_gets_past(later, record, failed) for later in ended[index + 1 :])
            facts = {"pattern": record.pattern, "step": record.step, "message": record.message[:KEPT]}
            cure = {"hint": (record.hint or "")[:KEPT], "cured_by": session if gone else None}
            update = {**facts, **cure}
            failures[record.pattern, record.step, failed.key] = failed.model_copy(update=update)
    return tuple(failures.values())


def fingerprints_of_step(record: Finished) -> tuple[FailureSeen, ...]:
    """Fingerprints of one failed step: one per wrong variant, else one for the step."""
    verified = read_output(record, VerifyOutput)
    wrong = []
    for checks in (verified.control, *verified.variants) if verified else ():
        # Keep only the kind of failure: count and size of wrong elements differ from run to run.
        if checks is not None and (failure := checks.first_failure) is not None:
            kind = f"{failure.status}: {normal_line(failure.fault.text if failure.fault else failure.message)}"
            if failure.status in ("wrong", "tampered"):
                kind = "inexact" if failure.status == "wrong" and not failure.wrong else failure.status
            wrong.append(FailureSeen.from_fingerprint(f"{checks.variant} {kind}", checks.variant))
    if wrong:
        return tuple(wrong)
    if record.killed:
        return (FailureSeen.from_fingerprint(f"{record.action}: over its limit"),)
    command = read_output(record, CommandOutput)
    line = telling_line(command.output) if command else ""
    if command and names_error(line):
        return (FailureSeen.from_fingerprint(normal_line(line)),)
    if command and command.code:  # No line names the error: use exit status and last line.
        how = describe_exit(command.code)
        return (FailureSeen.from_fingerprint(f"{how}: {normal_line(line)}" if line else how),)
    return (fingerprint(record.message),)


def _gets_past(later: Finished, record: Finished, failed: FailureSeen) -> bool:
    """Whether a later attempt at the step no longer has this failure, even if other variants fail."""
    if (later.pattern, later.step) != (record.pattern, record.step):
        return False
    if later.status == "passed":
        return True
    subjects = {other.subject for other in fingerprints_of_step(later)} if later.status == "failed" else {""}
    return bool(failed.subject) and "" not in subjects and failed.subject not in subjects

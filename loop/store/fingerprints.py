"""Error fingerprints: recognise the same failure in another session or on another machine.

A fingerprint drops paths, line numbers, addresses, numbers, hashes, dates, quotes, shapes, colours.
It keeps error names of compiler, linker, CUDA, git and Python, and names of symbols, headers, GPUs.
"""

import re
from collections.abc import Callable, Sequence

from loop.base.errors import remove_escapes
from loop.base.processes import describe_exit
from loop.model.index import FailureSeen
from loop.model.output import CommandOutput, VerifyOutput, read_output
from loop.model.record import Finished, SessionHead

MAX_READ = 200_000  # Characters examined at each end of a text. Errors stand near the ends.
MAX_LINE = 600  # Characters examined of one line.
MAX_FINGERPRINT = 160  # Maximum length of a fingerprint in characters.

ERROR_WORDS = re.compile(  # They mark the line that names the error.
    "(?i)undefined symbol|undefined reference|multiple definition|cannot find -l|error ?:|fatal:"
    "|fatal ?  :|cuda ?_?error|no kernel image|driver version|needs driver|out of memory|bad_alloc"
    "|memoryerror|killed after|timed out|crashed with|segmentation fault|no such file|not found"
    "|permission denied|no space left|assertion|cannot open shared object"
)
ACCOMPANYING_WORDS = re.compile(  # Such a line only accompanies the real error line.
    "(?i): in function|collect2: error|compilation terminated|warning:|note:|errors? generated"
    "|error\\(s\\) generated|errors? detected in the"
)
EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,100}(?:Error|Exception|Interrupt|Warning)(?::|$)")
"""The last line of a Python traceback."""

OUT_OF_MEMORY = re.compile(  # As programs, libraries and drivers say it.
    "(?i)out[ _]of[ _]memory|cudaerrormemoryallocation|bad_alloc|memoryerror|cannot allocate"
)
SOURCE_POSITION = re.compile(r"[^\s:()]+(?:\(\d+\)|(?::\d+){1,2}|:\(\.[^)\s]*\)):\s+")
"""Source positions: `file:12:3: `, `file(12): `, `file.o:(.text+0xa): `."""
ERROR_START = re.compile(  # The text before names only the program and the file.
    "undefined symbol: |undefined reference to |multiple definition of |cannot find -l|fatal: "
)
TEMPORARY_NAME = r"\b(?:tmp(?:xft)?_?[A-Za-z0-9_-]{6,}|cc[A-Za-z0-9]{6}(?=\.))(?:\.\w+)*"
STABLE_FILE = re.compile(  # A fingerprint keeps the names of these, without the folder.
    r".*\.(?:h|hpp|hh|cuh|so|a|inc)|sh|bash|ld|nvcc|g\+\+|gcc|clang(\+\+)?|ptxas|cc1plus|cicc"
    "|nvlink|git"
)
MAX_MESSAGE = 400  # Characters of a message stored in the index.


def _mask_path(match: re.Match[str]) -> str:
    """A path's replacement: name of a header, library or program, or `PATH`; `and/or` stays."""
    text = match[0]
    has_root = text.startswith(("/", "./", "../", "~/"))
    if not has_root and text.count("/") < 2 and "." not in text.rpartition("/")[2]:
        return text
    name = text.rstrip("/.").rpartition("/")[2]
    if ".so" in name:  # Without a version: libc.so.6.
        name = name.partition(".so")[0] + ".so"
    return name if STABLE_FILE.fullmatch(name) and not re.search(TEMPORARY_NAME, name) else "PATH"


def _mask_number(match: re.Match[str]) -> str:
    """`N` for a number, with a final `.` or `,`. It stays behind `exit`, `code` and the like."""
    if match[1]:
        return match[0].rstrip(".,")
    return "N" if match[0][-1].isdigit() else f"N{match[0][-1]}"


# Parts that differ from run to run, with replacements. Addresses go before numbers.
REPLACEMENTS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"(?i)(?<![\w.])(?:catastrophic |fatal |internal compiler )?error *(?:#\d+(?:-D)?)? *: *", ""),
    (r"[;,?]? *did you mean .*", ""),
    ("[`\u2018\u2019\u201c\u201d\"]|(?<!\\w)'|'(?!\\w)", ""),
    (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b", "ADDRESS"),
    (r"\b\d{4}-\d\d-\d\d(?:[T -]\d\d:?\d\d:?\d\d(?:\.\d+)?Z?)?", "N"),
    (r"[^\s:;,()<>=|]*/[^\s:;,()<>=|]*", _mask_path),
    (TEMPORARY_NAME, "TEMPORARY_NAME"),
    (r"\b(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}\b", "HASH"),
    (r"\b[A-Z][a-z]?=?\d+(?: [A-Z][a-z]?=?\d+)+", "SHAPE"),
    (r"(?<![\w.])(exit |status |code |error |signal )?[-+]?\d[\d.,]*(?:e[-+]?\d+)?", _mask_number),
    (r"\bN(?:[ ,x/:-]{1,3}N\b)+", "N"),
)


def find_error_line(text: str) -> str:
    """The first line that names an error; the last non-empty line if none does; else empty."""
    examined_text = text if len(text) <= 2 * MAX_READ else f"{text[:MAX_READ]}\n{text[-MAX_READ:]}"
    lines = [line[:MAX_LINE].strip() for line in examined_text.splitlines()]
    return next(filter(names_error, lines), "") or next(filter(None, reversed(lines)), "")


def names_error(line: str) -> bool:
    """Whether a line names an error, and does not only accompany one (`compilation terminated`)."""
    is_error = ERROR_WORDS.search(line) or EXCEPTION.match(line)
    return bool(is_error) and not ACCOMPANYING_WORDS.search(line)


def normalise_line(line: str) -> str:
    """Normal form of a line, `MAX_FINGERPRINT` characters at most: what differs between machines or
    runs is replaced, what precedes the error cut. Lack of memory has one form."""
    text = remove_escapes(line[:MAX_LINE])
    if OUT_OF_MEMORY.search(text):
        return "CUDA out of memory" if "cuda" in text.lower() else "out of memory"
    # Cut what precedes the error: source position, variant, program.
    positions = [match.end() for match in SOURCE_POSITION.finditer(text)]
    text = text[positions[-1] :] or text if positions else text
    start = ERROR_START.search(text)
    text = text[start.start() :] if start else text
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    return " ".join(text.split())[:MAX_FINGERPRINT].rstrip(" .")


def collect_failures(head: SessionHead, attempts: Sequence[Finished]) -> tuple[FailureSeen, ...]:
    """Failures of a session, one per step and fingerprint, also from before a fresh start."""
    failures: dict[tuple[str, str, str], FailureSeen] = {}
    for index, record in enumerate(attempts):
        if record.status != "failed":
            continue
        for failure in fingerprints_of_step(record, head.ground):
            is_cured = any(_is_cured_in(later, record, failure) for later in attempts[index + 1 :])
            fields = {"pattern": record.pattern, "step": record.step, "action": record.action}
            fields["message"] = record.message[:MAX_MESSAGE]
            fields["hint"] = (record.hint or "")[:MAX_MESSAGE]
            fields |= {"cured_by": head.id} if is_cured else {}
            failures[record.pattern, record.step, failure.key] = failure.model_copy(update=fields)
    return tuple(failures.values())


def fingerprints_of_step(record: Finished, sources: str) -> tuple[FailureSeen, ...]:
    """Fingerprints of a failed step: one per wrong variant; else one, by its limit, its command's
    error, exit status or message. Wrong outputs, crashes and slow builds look alike whatever the
    mistake: they are one failure only on the same `sources` (hash); an error with a text always."""
    verified = read_output(record, VerifyOutput)
    failures = []
    # `control`: the baseline library under the same checks.
    for checks in filter(None, (verified.control, *verified.variants) if verified else ()):
        failure = checks.first_failure
        if failure is None:
            continue
        kind: str = failure.status  # Without count and size of wrong elements: they vary.
        is_named = kind == "refused" and (failure.fault is None or failure.fault.seed is None)
        if failure.status == "wrong" and not failure.wrong:
            kind = "inexact"  # No element is beyond the tolerance.
        elif failure.status not in ("wrong", "tampered"):
            text = failure.fault.text if failure.fault else failure.message
            kind = f"{failure.status}: {normalise_line(text)}"
        identity = "" if is_named else sources
        text = f"{checks.variant} {kind}"
        failures.append(FailureSeen.from_fingerprint(text, checks.variant, identity))
    if failures:
        return tuple(failures)
    command = read_output(record, CommandOutput)
    line = find_error_line(command.output) if command else ""
    if record.killed:
        text = f"{record.action}: over its limit"
    elif command and names_error(line):
        text = normalise_line(line)
    elif command and command.code:  # No line names the error: use exit status and last line.
        ending = describe_exit(command.code)
        text = f"{ending}: {normalise_line(line)}" if line else ending
    else:
        text = normalise_line(find_error_line(record.message)) or "no message"
        is_finding = record.output.get("verdicts") or record.output.get("answer")
        return (FailureSeen.from_fingerprint(text, sources=sources if is_finding else ""),)
    return (FailureSeen.from_fingerprint(text),)


def _is_cured_in(later_attempt: Finished, failed_attempt: Finished, failure: FailureSeen) -> bool:
    """Whether a later attempt at the step no longer has this failure, even if others fail."""
    if (later_attempt.pattern, later_attempt.step) != (failed_attempt.pattern, failed_attempt.step):
        return False
    if later_attempt.status != "failed":
        return later_attempt.status == "passed"
    failing_variants = {remaining.subject for remaining in fingerprints_of_step(later_attempt, "")}
    # An empty subject: a step failed as a whole, so nothing is known of single variants.
    return bool(failure.subject) and not failing_variants & {"", failure.subject}

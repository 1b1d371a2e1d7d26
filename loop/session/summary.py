"""A session in what a job summary or a comment holds: its first screen, shortened by whole rows and lines."""

import re
from collections.abc import Iterator, Sequence

from loop.base.errors import UsageError
from loop.model.record import Finished, SessionRecord
from loop.report import format as say
from loop.report.markdown import block, code, escape, paragraph, table
from loop.report.plain import plain, shortened
from loop.session import course
from loop.session.first_screen import ENDINGS, FirstScreen, first_screen

LIMIT = 65_536
"""Bytes; a comment on GitHub holds that many characters, a job summary 1 MiB."""
LEAST = 1_500
"""Bytes that verdict and link take."""
LEFT_OUT = 160
"""Bytes that are kept for naming what is left out."""
LOG_LINES = 12
LONGEST, LONGEST_CELL = 500, 120
"""Letters of one message, and of a cell."""
_LINK = re.compile(r"https?://[!-;=?-~]{1,290}")
_CALL = re.compile(r"\\.|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|(?P<call>@(?=\w)|#(?=\d))", re.DOTALL)


def digest(record: SessionRecord, finished: Sequence[Finished], limit: int = LIMIT, link: str = "") -> str:
    """A session as Markdown of at most `limit` bytes. Raises UsageError where that is too few, or no link."""
    if limit < LEAST:
        raise UsageError(f"--limit {limit}: expected {LEAST} or more", hint=f"--limit {LIMIT} is a comment's")
    if link and not _LINK.fullmatch(link):
        raise UsageError(f"--link {shortened(link, 60)}: expected a web address", hint="--link https://...")
    screen = first_screen(record, finished)
    ending = f"{code(shortened(record.head.target, 40))} {ENDINGS[record.status]}"
    short = f"**{ending}: {escape(shortened(record.reason, 120))}.**"
    fitting = (text for text in map(quiet, (screen.headline, short)) if len(text.encode()) <= limit // 4)
    title = f"### {code(shortened(record.head.target, 40))} on {escape(shortened(course.device(record.head), 40))}"
    head = f"{marker(record.head.target)}\n{title}\n\n{next(fitting, f'**{ending}.**')}\n"
    command = record.head.report_command
    command = command if len(command.encode()) <= limit // 4 else f"loop report {shortened(record.head.id, 80)}"
    foot = f"\nThe whole report: {code(command)}{f', or [here](<{link}>)' if link else ''}.\n"
    room = limit - len(head.encode()) - len(foot.encode()) - LEFT_OUT
    parts, omitted = [head], []
    for name, texts in _pieces(screen, finished):
        for text in map(quiet, texts):
            if len(text.encode()) > room:
                omitted.append(name)
                break
            parts.append(text)
            room -= len(text.encode())
    names = [escape(shortened(name, 36)) for name in omitted[:2]]
    names += [f"{len(omitted) - 2} more"] if len(omitted) > 2 else []
    note = f"\nShortened for length: {say.listed(names)}.\n" if omitted else ""
    return "".join([*parts, note, foot])


def marker(target: str) -> str:
    """The comment by which a workflow finds its own comment again: `<!-- loop: my-kernel -->`."""
    return f"<!-- loop: {re.sub(r'[^A-Za-z0-9._]+', '-', target)[:80].strip('-')} -->"


def quiet(text: str) -> str:
    """Markdown in which no `@name` calls somebody and no `#12` points at an issue; code calls nobody anyway.

    A code host looks for both in what it shows: an empty HTML comment parts the two halves.
    """
    return _CALL.sub(lambda match: f"{match[0]}<!-- -->" if match["call"] else match[0], text)


def _pieces(screen: FirstScreen, finished: Sequence[Finished]) -> Iterator[tuple[str, list[str]]]:
    """What is said, most important first, each with its name: in this order room is given away."""
    yield "what is wrong", _after("\n", [f"- {_line(text)}\n" for text in screen.cause])
    command = f"\n{block([screen.command])}\n" if screen.command else ""
    yield "what to do next", [f"\n**Next:** {_line(screen.next)}\n{command}"] if screen.next else []
    if screen.variants:  # Rows come with the worst first, so that the last ones are left out.
        heads, rule, *rows = table(screen.variants, letters=LONGEST_CELL).split("\n")
        yield "variants", _after(f"\n{heads}\n{rule}\n", [f"{row}\n" for row in rows])
    yield "the known good", [f"\n{paragraph(screen.known_good)}\n"] if screen.known_good else []
    for record in course.failed(finished):
        yield f"what {course.name_of(record)} said", list(_trouble(record))
    for diagnosis in screen.wrong:
        lines = [f"- {label}: {_line(text)}\n" for label, text in diagnosis.lines]
        lines += [f"- again: {code(shortened(diagnosis.command, LONGEST))}\n"] if diagnosis.command else []
        yield f"what else is wrong with {diagnosis.variant}", _after(f"\n{code(diagnosis.variant)}:\n\n", lines)
    yield "cost", _after("\n", [f"- {_line(text)}\n" for text in screen.lines])


def _after(head: str, lines: list[str]) -> list[str]:
    """Lines, the first with what stands over all; nothing where there are none."""
    return [head + lines[0], *lines[1:]] if lines else []


def _line(text: str) -> str:
    return paragraph(shortened(text, LONGEST))


def _trouble(record: Finished) -> Iterator[str]:
    """A failed step: its message, what it printed where that is more than a line, what to do."""
    yield f"\n{code(course.name_of(record))} failed: {_line(record.message)}\n"
    lines = [line.rstrip() for line in plain(record.message).expandtabs(2).strip("\n").splitlines()]
    if len(lines) > 1:
        omitted = [f"... {len(lines) - LOG_LINES} more lines"] if len(lines) > LOG_LINES else []
        yield f"\n{block([*(line[:LONGEST] for line in lines[:LOG_LINES]), *omitted], 'text')}\n"
    if record.hint:
        yield f"\nWhat usually cures it: {_line(record.hint)}\n"

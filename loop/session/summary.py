"""A session in what a job summary or a comment holds: its first screen, shortened by whole rows."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loop.base.errors import UsageError
from loop.model.record import Finished, SessionRecord
from loop.report import format as say
from loop.report.markdown import Table, block, code, escape, paragraph, table
from loop.report.plain import plain, shortened
from loop.session import course
from loop.session.first_screen import ENDINGS, FirstScreen, first_screen

LIMIT = 65_536
"""Bytes; a comment on GitHub holds that many characters, a job summary 1 MiB."""
LEAST = 1_500
"""Bytes that verdict and link take."""
ROOM_FOR_WHAT_IS_LEFT_OUT = 160
LOG_LINES = 12
LONGEST, LONGEST_CELL = 500, 120
"""Letters of one message, and of a cell."""
_LINK = re.compile(r"https?://[!-;=?-~]{1,290}")
_CALL = re.compile(r"\\.|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|(?P<call>@(?=\w)|#(?=\d))", re.DOTALL)

Part = Callable[[int], tuple[str, bool]]
"""From bytes to what fits into them (empty: nothing), and whether that is all of it."""


@dataclass(frozen=True)
class Piece:
    """One thing that is said, and what it is called where it has no room."""

    name: str
    within: Part


def digest(record: SessionRecord, finished: Sequence[Finished], limit: int = LIMIT, link: str = "") -> str:
    """A session as Markdown of at most `limit` bytes. Raises LoopError where that is too few, or no link."""
    if limit < LEAST:
        raise UsageError(f"--limit {limit}: expected {LEAST} or more", hint=f"--limit {LIMIT} is a comment's")
    if link and not _LINK.fullmatch(link):
        raise UsageError(f"--link {shortened(link, 60)}: expected a web address", hint="--link https://...")
    screen = first_screen(record, finished)
    head, foot = _head(record, screen, limit), _foot(record, limit, link)
    room = limit - _size(head) - _size(foot) - ROOM_FOR_WHAT_IS_LEFT_OUT
    parts, left = [head], []
    for piece in _pieces(screen, finished):
        text, whole = piece.within(room)
        parts += [text] if text else []
        room -= _size(text)
        left += [] if whole else [piece.name]
    note = f"\nShortened for length: {_named(left)}.\n" if left else ""
    return "".join([*parts, note, foot])


def marker(target: str) -> str:
    """The comment by which a workflow finds its own comment again: `<!-- loop: my-kernel -->`."""
    return f"<!-- loop: {re.sub(r'[^A-Za-z0-9._]+', '-', target)[:80].strip('-')} -->"


def quiet(text: str) -> str:
    """Markdown in which no `@name` calls somebody and no `#12` points at an issue; code calls nobody anyway.

    A code host looks for both in what it shows: an empty HTML comment parts the two halves.
    """
    return _CALL.sub(lambda found: f"{found[0]}<!-- -->" if found["call"] else found[0], text)


def _named(left: Sequence[str]) -> str:
    """The first of what has no room, and how many more."""
    names = [escape(shortened(name, 36)) for name in left[:2]]
    return say.listed([*names, f"{len(left) - 2} more"] if len(left) > 2 else names)


def _size(text: str) -> int:
    return len(text.encode())


def _head(record: SessionRecord, screen: FirstScreen, limit: int) -> str:
    ending = f"{code(shortened(record.head.target, 40))} {ENDINGS[record.status]}"
    short = f"**{ending}: {escape(shortened(record.reason, 120))}.**"
    fitting = (text for text in map(quiet, (screen.headline, short)) if _size(text) <= limit // 4)
    where = shortened(course.device(record.head), 40)
    title = f"### {code(shortened(record.head.target, 40))} on {escape(where)}"
    return f"{marker(record.head.target)}\n{title}\n\n{next(fitting, f'**{ending}.**')}\n"


def _foot(record: SessionRecord, limit: int, link: str) -> str:
    command = record.head.report_command
    known = command if _size(command) <= limit // 4 else f"loop report {shortened(record.head.id, 80)}"
    again = f"The whole report: {code(known)}"
    return f"\n{again}{f', or [here](<{link}>)' if link else ''}.\n"


def _pieces(screen: FirstScreen, finished: Sequence[Finished]) -> Iterator[Piece]:
    """What is said, most important first: this is also the order in which room is given away."""
    cause = [f"{'' if place else chr(10)}- {_line(text)}\n" for place, text in enumerate(screen.cause)]
    yield Piece("what is wrong", _texts(cause))
    command = f"\n{block([screen.command])}\n" if screen.command else ""
    yield Piece("what to do next", _texts([f"\n**Next:** {_line(screen.next)}\n{command}"] if screen.next else []))
    yield Piece("variants", _rows(screen.variants))
    yield Piece("the known good", _texts([f"\n{paragraph(screen.known_good)}\n"] if screen.known_good else []))
    for trouble in course.troubles(finished):
        yield Piece(f"what {trouble.step} said", _texts(list(_trouble(trouble))))
    for found in screen.wrong:
        lines = [f"- {label}: {_line(text)}\n" for label, text in found.lines]
        again = [f"- again: {code(shortened(found.command, LONGEST))}\n"] if found.command else []
        said = [f"\n{code(found.variant)}:\n\n", *lines, *again] if lines or again else []
        yield Piece(f"what else is wrong with {found.variant}", _texts(said))
    first, *rest = (f"- {_line(text)}\n" for text in screen.lines)
    yield Piece("cost", _texts([f"\n{first}", *rest]))


def _line(text: str) -> str:
    return paragraph(shortened(text, LONGEST))


def _trouble(trouble: course.Trouble) -> Iterator[str]:
    """A failed step: its message, what it printed, what to do."""
    yield f"\n{code(trouble.step)} failed: {_line(trouble.message)}\n"
    printed = _printed(trouble.message)
    if printed:
        yield f"\n{block(printed, 'text')}\n"
    if trouble.hint:
        yield f"\nWhat usually cures it: {_line(trouble.hint)}\n"


def _printed(message: str) -> list[str]:
    """Lines of a message that has several, or is too long for one; the first so many."""
    lines = [line.rstrip() for line in plain(message).expandtabs(2).strip("\n").splitlines()]
    if len(lines) < 2:
        return []
    more = len(lines) - LOG_LINES
    return [line[:LONGEST] for line in lines[:LOG_LINES]] + ([f"... {more} more lines"] if more > 0 else [])


def _texts(texts: Sequence[str]) -> Part:
    """As many whole texts as fit; none where the first does not."""

    def within(room: int) -> tuple[str, bool]:
        kept = ""
        for text in map(quiet, texts):
            if _size(kept + text) > room:
                return kept, False
            kept += text
        return kept, True

    return within


def _rows(content: Table | None) -> Part:
    """A table with as many whole rows as fit; they come with the worst first."""

    def within(room: int) -> tuple[str, bool]:
        if content is None:
            return "", True
        low, high = 0, len(content.rows)
        while low < high:
            middle = (low + high + 1) // 2
            fits = _size(_first(content, middle)) <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        return (_first(content, low) if low else ""), low == len(content.rows)

    return within


def _first(content: Table, rows: int) -> str:
    more = len(content.rows) - rows
    note = f"\nand {say.count(more, 'row')} more\n" if more else ""
    return f"\n{quiet(table(Table(content.columns, content.rows[:rows]), letters=LONGEST_CELL))}\n{note}"

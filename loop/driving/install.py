"""`loop agents install [--remove]`: files that tell an agent how to use loop, in a folder of the user's.

Between two marks the text is loop's; everything else in a file is the user's, and stays byte by byte. The front
matter of the skill stands between them, too: its first line is a comment with the first mark.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loop.base.documents import to_json, write_atomic
from loop.base.documents.files import unusable
from loop.base.errors import ExitCode, UsageError
from loop.base.screen import Screen
from loop.driving.skill import BEGIN, END, NAME, section, skill
from loop.model.base import Model, Printed

PAGE = "AGENTS.md"
SKILL = "SKILL.md"
Change = Literal["made", "updated", "unchanged", "removed", "not there"]


class TouchedFile(Model):
    """One file, and what becomes of it."""

    file: str
    """The file."""
    change: Change
    """What becomes of it; without `written` nothing did yet."""


class AgentFiles(Printed):
    """The files that tell agents how to use loop."""

    folder: str
    """Where they are."""
    files: tuple[TouchedFile, ...]
    """Each of them."""
    written: bool
    """Whether it was done; without `--yes` it is only said."""


@dataclass(frozen=True)
class Planned:
    """What a file is to hold; None: it is to go."""

    path: Path
    change: Change
    content: str | None


@dataclass(frozen=True)
class AgentsRequest:
    """What the user asked for."""

    folder: Path | None = None
    """None: here."""
    skills: Sequence[str] = ()
    """Folders of skills; see `DEFAULTS` for none."""
    remove: bool = False
    """Take away what was written."""
    yes: bool = False
    json: bool = False


DEFAULTS = (".agents/skills", ".claude/skills")
"""Where clients look for skills: the first is that of most, the second Claude Code's."""


def install(request: AgentsRequest, screen: Screen) -> int:
    """Write the skill and the section of AGENTS.md, or take them away, after asking."""
    folder = (request.folder or Path()).absolute()
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="name the folder of your project")
    places = [Path(folder_of_skills) / NAME / SKILL for folder_of_skills in request.skills or DEFAULTS]
    if request.remove:
        plan = [*_removed(folder, places)]
    else:
        plan = [
            *(_with(folder, place, skill()) for place in places),
            _with(folder, Path(PAGE), section(places[0])),
        ]
    todo = [file for file in plan if file.change not in ("unchanged", "not there")]
    agreed = request.yes if request.json else _agreed(plan, todo, request, screen)
    for file in todo if agreed else ():
        _apply(file, folder)
    if request.json:
        files = tuple(TouchedFile(file=str(file.path), change=file.change) for file in plan)
        screen.data(to_json(AgentFiles(folder=str(folder), files=files, written=agreed)))
    return ExitCode.OK if agreed or not todo else ExitCode.USAGE


def _agreed(plan: Sequence[Planned], todo: Sequence[Planned], request: AgentsRequest, screen: Screen) -> bool:
    """Show what becomes of each file; whether it may be done, which is asked where it was not said."""
    folder = (request.folder or Path()).absolute()
    for file in plan:
        would_be = "" if request.yes or file not in todo else "would be "
        screen.data(f"{(would_be + file.change).ljust(16)}  {file.path.relative_to(folder)}")
    agreed = request.yes or (bool(todo) and screen.confirm("Take that away?" if request.remove else "Write that?"))
    if todo and not agreed:
        screen.say("nothing was written; to do it: add --yes")
    return agreed


def _removed(folder: Path, places: Sequence[Path]) -> Iterator[Planned]:
    for place in (*places, Path(PAGE)):
        path, text = _read(folder, place)
        parts = _parts(path, text or "")
        if text is None or parts is None:
            yield Planned(path, "not there", None)
        else:
            remainder = _without(*parts, _line_end(text))
            yield Planned(path, "removed" if remainder is None else "updated", remainder)


def _with(folder: Path, place: Path, part: str) -> Planned:
    """A file with our part in the place of an older one, or at its end."""
    path, text = _read(folder, place)
    if text is None:
        return Planned(path, "made", part)
    parts, end = _parts(path, text), _line_end(text)
    part = part.replace("\n", end)
    if parts is None and place.name == SKILL:
        raise UsageError(
            f"{path}: it is not loop's, and stays", hint="move it away, or name another folder: --skills"
        )
    if parts is None:
        gap = end if text.endswith(end) else 2 * end if text else ""
        content = text + gap + (part if text.endswith(end) else part.removesuffix(end))
    else:
        before, after = parts
        content = before + part[part.index(BEGIN) :].removesuffix(end) + after
    return Planned(path, "unchanged" if content == text else "updated", content)


def _without(before: str, after: str, end: str) -> str | None:
    """What is the user's; None where nothing is.

    A file that ended without a line end ends so behind our part, too: then both line ends before that are ours.
    Of a blank line before it one line end is ours, and of a file of our own its first line.
    """
    if before == f"---{end}# ":
        return after.removeprefix(end) if after.strip() else None
    if not before and after == end:
        return None
    if not after:
        return before.removesuffix(2 * end)
    rest = after.removeprefix(end)
    return (before.removesuffix(end) if before.endswith(2 * end) else before) + rest


def _parts(path: Path, text: str) -> tuple[str, str] | None:
    """What stands before and after the marks; None where there are none. Raises UsageError for half of one."""
    count = (text.count(BEGIN), text.count(END))
    if count == (0, 0):
        return None
    before, _, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if count != (1, 1) or not ended:
        raise UsageError(
            f"{path}: the marks of loop's part are not one pair: {count[0]} begin, {count[1]} end",
            hint=f"put them right by hand: {BEGIN} before it, {END} after it",
        )
    return before, after


def _read(folder: Path, place: Path) -> tuple[Path, str | None]:
    """Where a file really is, and what it holds; None where there is none. Raises UsageError for one elsewhere."""
    path = folder / place
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{path}: leads out of {folder}", hint="name another folder of skills: --skills")
    try:
        return path, path.read_bytes().decode()
    except FileNotFoundError:
        return path, None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise unusable(path, "read", error) from error


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _apply(file: Planned, folder: Path) -> None:
    path = file.path.resolve() if file.path.is_symlink() else file.path
    try:
        if file.content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, file.content.encode())
            return
        path.unlink()
    except OSError as error:
        raise unusable(path, "written", error) from error
    for parent in path.parents:
        if parent == folder or not parent.is_relative_to(folder):
            break
        with contextlib.suppress(OSError):  # Somebody else's files are in it.
            parent.rmdir()

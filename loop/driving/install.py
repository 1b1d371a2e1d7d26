"""`loop agents install`: files that tell an agent how to use loop, in a folder of the user's.

The skill is loop's file. In AGENTS.md only the text between two marks is; everything else stays as it is.
"""

from inspect import Parameter
from pathlib import Path
from typing import Literal

from loop import __version__
from loop.base.documents import to_json, write_atomic
from loop.base.documents.files import unusable
from loop.base.errors import ERROR_CODES, EXIT_CODES, ExitCode, UsageError
from loop.base.places import shipped
from loop.base.screen import Screen
from loop.cli import ALL
from loop.model.base import Model, Printed
from loop.report.markdown import Markdown
from loop.report.templates import environment

BEGIN = "<!-- loop: begin. `loop agents install` writes what follows anew -->"
END = "<!-- loop: end -->"
NAME = "loop"
LOOK = ("status", "kernels list", "targets inspect", "plan next")
START = ("init",)
OTHER = ("kernels verify", "kernels measure", "bisect", "sessions compare", "patterns list", "cost show")
"""Commands whose examples the skill shows."""


def skill() -> str:
    """The skill: what an agent needs that knows nothing of loop."""
    lines = []
    for command in (command for command in ALL if command.agents):
        needed = [p.name.upper() for p in command.parameters if p.default is Parameter.empty]
        lines.append({"words": " ".join([command.words, *needed]), "line": command.summary})
    return _rendered(
        "SKILL.md.j2",
        version=__version__,
        look=_examples(LOOK),
        start=_examples(START),
        other=_examples(OTHER),
        commands=lines,
        exit_codes={str(int(code or 0)): meaning for code, meaning in EXIT_CODES.items()},
        error_codes=ERROR_CODES,
    )


def section(skill_path: Path) -> str:
    """The section of AGENTS.md; `skill_path`: where the skill is, from there."""
    return _rendered("AGENTS.md.j2", skill=Markdown(skill_path.as_posix()))


def _examples(names: tuple[str, ...]) -> list[Markdown]:
    """The first example of each command, as it is; what only reads is asked for JSON."""
    rows = {command.words: command for command in ALL}
    chosen = [(rows[name], rows[name].examples[0].partition("   (")[0]) for name in names]
    return [
        Markdown(text if "--json" in text or not command.agents else f"{text} --json") for command, text in chosen
    ]


def _rendered(template: str, **values: object) -> str:
    page = environment(shipped("templates") / "agents").get_template(template)
    return page.render(begin=Markdown(BEGIN), end=Markdown(END), **values)


SKILLS = (Path(".agents/skills/loop/SKILL.md"), Path(".claude/skills/loop/SKILL.md"))
"""Where clients look for skills: the first is that of most, the second Claude Code's."""
PAGE = Path("AGENTS.md")


class TouchedFile(Model):
    """One file, and what becomes of it."""

    file: str
    """The file, below the folder."""
    change: Literal["made", "updated", "unchanged"]
    """What becomes of it; without `written` nothing did yet."""


class AgentFiles(Printed):
    """The files that tell agents how to use loop."""

    folder: str
    """Where they are."""
    files: tuple[TouchedFile, ...]
    """Each of them."""
    written: bool
    """Whether it was done; without `--yes` it is only said."""


def install(folder: Path | None, screen: Screen, *, yes: bool, as_json: bool) -> int:
    """Write the skill and the section of AGENTS.md, after asking. Raises UsageError for files it cannot use."""
    here = (folder or Path()).absolute()
    if not here.is_dir():
        raise UsageError(f"{here}: no such folder", hint="name the folder of your project")
    before = {place: _read(here / place) for place in (*SKILLS, PAGE)}
    for place in SKILLS:
        if before[place] and BEGIN not in before[place]:
            raise UsageError(f"{here / place}: it is not loop's, and stays", hint="move it away")
    after = {place: skill() for place in SKILLS} | {PAGE: _page(here / PAGE, before[PAGE])}
    todo = [place for place in after if after[place] != before[place]]
    files = [
        TouchedFile(
            file=str(place), change="unchanged" if place not in todo else "updated" if before[place] else "made"
        )
        for place in after
    ]
    agreed = yes
    if not as_json:
        for file in files:
            screen.data(f"{file.change:10}{file.file}")
        agreed = yes or (bool(todo) and screen.confirm("Write that?"))
        if todo and not agreed:
            screen.say("nothing was written; to do it: add --yes")
    for place in todo if agreed else ():
        try:
            (here / place).parent.mkdir(parents=True, exist_ok=True)
            write_atomic((here / place).resolve(), after[place])
        except OSError as error:
            raise unusable(here / place, "written", error) from error
    if as_json:
        screen.data(to_json(AgentFiles(folder=str(here), files=tuple(files), written=agreed)))
    return ExitCode.OK if agreed or not todo else ExitCode.USAGE


def _page(path: Path, text: str) -> str:
    """AGENTS.md with our section in the place of an older one, or at its end."""
    part = section(SKILLS[0])
    if BEGIN not in text:
        return f"{text.rstrip()}\n\n{part}".lstrip()
    before, _, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not ended:
        raise UsageError(f"{path}: the mark that ends loop's part is gone", hint=f"put {END} behind it")
    return before + part.rstrip() + after


def _read(path: Path) -> str:
    """What a file holds; empty where there is none."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise unusable(path, "read", error) from error

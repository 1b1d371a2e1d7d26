"""`loop agents install`: writes files that explain loop to an agent, into a folder of the user's.

The skill file belongs to loop. In AGENTS.md only the text between two marks is written.
"""

from inspect import Parameter
from pathlib import Path
from typing import Literal

from loop import __version__
from loop.base.documents import to_json, write_atomic
from loop.base.documents.files import file_error
from loop.base.errors import ERROR_CODES, EXIT_CODES, ExitCode, UsageError
from loop.base.places import shipped
from loop.base.screen import Screen
from loop.cli import ALL
from loop.model.base import Printed
from loop.report.markdown import Markdown
from loop.report.templates import environment

BEGIN = "<!-- loop: begin. `loop agents install` writes what follows anew -->"
END = "<!-- loop: end -->"
TEMPLATES = environment(shipped("templates") / "agents")
LOOK = ("status", "kernels list", "targets inspect", "plan next")
START = ("init",)
OTHER = ("kernels verify", "kernels measure", "bisect", "sessions compare", "patterns list", "cost show")
"""Commands whose examples the skill shows."""


def skill() -> str:
    """The text of SKILL.md, for an agent that knows nothing of loop."""
    lines = []
    for command in filter(lambda command: command.mcp, ALL):
        needed = [p.name.upper() for p in command.parameters if p.default is Parameter.empty]
        lines.append({"words": " ".join([command.words, *needed]), "line": command.summary})
    rows = {command.words: command for command in ALL}

    def examples(names: tuple[str, ...]) -> list[Markdown]:
        """The first example of each command, with `--json` if the command is a tool."""
        firsts = [(rows[name].examples[0], rows[name].mcp) for name in names]
        asked = (f"{text} --json" if is_tool and "--json" not in text else text for text, is_tool in firsts)
        return [Markdown(text) for text in asked]

    return TEMPLATES.get_template("SKILL.md.j2").render(
        begin=Markdown(BEGIN),
        end=Markdown(END),
        version=__version__,
        look=examples(LOOK),
        start=examples(START),
        other=examples(OTHER),
        commands=lines,
        exit_codes={str(int(code or 0)): meaning for code, meaning in EXIT_CODES.items()},
        error_codes=ERROR_CODES,
    )


def agents_section(skill_path: Path) -> str:
    """The section of AGENTS.md. `skill_path`: the skill, relative to AGENTS.md."""
    values = {"begin": Markdown(BEGIN), "end": Markdown(END), "skill": Markdown(skill_path.as_posix())}
    return TEMPLATES.get_template("AGENTS.md.j2").render(values)


SKILLS = (Path(".agents/skills/loop/SKILL.md"), Path(".claude/skills/loop/SKILL.md"))
"""Where clients look for skills: most in the first place, Claude Code in the second."""
PAGE = Path("AGENTS.md")


class AgentFiles(Printed):
    """What `loop agents install --json` prints."""

    folder: str
    files: tuple[dict[Literal["file", "change"], str], ...]
    """Each file's path below the folder, and its change: `made`, `updated` or `unchanged`."""
    written: bool
    """Whether the files were written: with `--yes` only."""

    def show(self, screen: Screen) -> None:
        """Print a line per file."""
        for row in self.files:
            screen.data(f"{row['change']:10}{row['file']}")


def install(folder: Path | None, screen: Screen, *, yes: bool, as_json: bool) -> int:
    """Write SKILL.md and the section of AGENTS.md, after asking. Raises UsageError for files it cannot use."""
    here = (folder or Path()).absolute()
    if not here.is_dir():
        raise UsageError(f"{here}: no such folder", hint="name the folder of your project")
    before = {}
    for place in (*SKILLS, PAGE):
        try:
            before[place] = (here / place).read_bytes().decode() if (here / place).exists() else ""
        except UnicodeDecodeError as error:
            raise UsageError(f"{here / place}: is no UTF-8 text", hint="save it as UTF-8") from error
        except OSError as error:
            raise file_error(here / place, "read", error) from error
    for place in SKILLS:
        if before[place] and BEGIN not in before[place]:
            raise UsageError(f"{here / place}: it is not loop's, and stays", hint="move it away")
    after = {place: skill() for place in SKILLS}
    page, part = before[PAGE], agents_section(SKILLS[0])
    above, begun, rest = page.partition(BEGIN)
    _, ended, below = rest.partition(END)
    if begun and not ended:
        raise UsageError(f"{here / PAGE}: the mark that ends loop's part is gone", hint=f"put {END} behind it")
    after[PAGE] = above + part.rstrip() + below if begun else f"{page.rstrip()}\n\n{part}".lstrip()
    todo = [place for place in after if after[place] != before[place]]
    rows = []
    for place in after:
        change = "unchanged" if place not in todo else "updated" if before[place] else "made"
        rows.append({"file": str(place), "change": change})
    answer = AgentFiles.model_validate({"folder": str(here), "files": rows, "written": yes})
    agreed = yes
    if not as_json:
        answer.show(screen)
        agreed = yes or (bool(todo) and screen.confirm("Write that?"))
        if todo and not agreed:
            screen.say("nothing was written; to do it: add --yes")
    for place in todo if agreed else ():
        try:
            (here / place).parent.mkdir(parents=True, exist_ok=True)
            write_atomic((here / place).resolve(), after[place])
        except OSError as error:
            raise file_error(here / place, "written", error) from error
    if as_json:
        screen.data(to_json(answer))
    return ExitCode.OK if agreed or not todo else ExitCode.USAGE

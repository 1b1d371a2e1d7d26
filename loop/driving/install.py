"""`loop agents install`: writes files that explain loop to an agent, into a folder of the user's.

The skill file belongs to loop. In AGENTS.md only the text between two marks is written.
"""

from pathlib import Path
from typing import Literal

from loop import __version__
from loop.base.documents import file_error, to_json, write_atomic
from loop.base.errors import ERROR_CODES, ExitCode, UsageError
from loop.base.places import shipped
from loop.cli import ALL
from loop.model.base import Printed
from loop.report.markdown import Markdown
from loop.report.screen import Screen
from loop.report.templates import markdown_environment

BEGIN = "<!-- loop: begin. `loop agents install` writes what follows anew -->"
END = "<!-- loop: end -->"
TEMPLATES = markdown_environment(shipped("templates") / "agents")
TEMPLATES.globals |= {"begin": Markdown(BEGIN), "end": Markdown(END)}
SKILL_PATHS = (Path(".agents/skills/loop/SKILL.md"), Path(".claude/skills/loop/SKILL.md"))
"""Where clients look for skills: most in the first place, Claude Code in the second."""
AGENTS_PATH = Path("AGENTS.md")


def skill_text() -> str:
    """The text of SKILL.md, for an agent that knows nothing of loop."""
    rows, command_by_words = [], {command.words: command for command in ALL}
    for command in ALL:
        if command.mcp:
            needs = [each.name.upper() for each in command.parameters if each.default is each.empty]
            rows.append({"words": " ".join([command.words, *needs]), "line": command.summary})

    def examples(*names: str) -> list[Markdown]:
        """The first example of each command, with `--json` if the command is a tool."""
        texts = []
        for name in names:
            example, is_tool = command_by_words[name].examples[0], bool(command_by_words[name].mcp)
            suffix = " --json" if is_tool and "--json" not in example else ""
            texts.append(Markdown(example + suffix))
        return texts

    judging = examples("kernels verify", "kernels measure", "bisect", "sessions compare")
    return TEMPLATES.get_template("SKILL.md.j2").render(
        version=__version__,
        look=examples("status", "kernels list", "targets inspect", "plan next"),
        start=examples("init"),
        other=[*judging, *examples("patterns list", "cost show")],
        commands=rows,
        exit_codes={str(int(code)): code.meaning for code in ExitCode},
        error_codes=ERROR_CODES,
    )


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
    """Write SKILL.md (twice) and the section of AGENTS.md, after asking. `yes`: do not ask;
    `as_json`: neither, and without `yes` nothing is written. Returns 2 if something would change
    and nobody agrees. Raises UsageError for another's SKILL.md, and LoopError as `file_error`."""
    here = (folder or Path()).absolute()
    if not here.is_dir():
        raise UsageError(f"{here}: no such folder", hint="name the folder of your project")
    old_texts = {}
    for path in (*SKILL_PATHS, AGENTS_PATH):
        try:
            old_texts[path] = (here / path).read_bytes().decode() if (here / path).exists() else ""
        except UnicodeDecodeError as error:
            raise UsageError(f"{here / path}: is no UTF-8 text", hint="save it as UTF-8") from error
        except OSError as error:
            raise file_error(here / path, "read", error) from error
        if path in SKILL_PATHS and old_texts[path] and BEGIN not in old_texts[path]:
            raise UsageError(f"{here / path}: it is not loop's, and stays", hint="move it away")
    new_texts = {path: skill_text() for path in SKILL_PATHS}
    template = TEMPLATES.get_template("AGENTS.md.j2")
    section = template.render(skill=Markdown(SKILL_PATHS[0].as_posix()))
    page = old_texts[AGENTS_PATH]
    above, begin, remainder = page.partition(BEGIN)
    _, end, below = remainder.partition(END)
    if begin and not end:
        message = f"{here / AGENTS_PATH}: the mark that ends loop's part is gone"
        raise UsageError(message, f"put {END} behind it")
    new_page = above + section.rstrip() + below
    new_texts[AGENTS_PATH] = new_page if begin else f"{page.rstrip()}\n\n{section}".lstrip()
    changed = [path for path in new_texts if new_texts[path] != old_texts[path]]
    rows = []
    for path in new_texts:
        change = "unchanged" if path not in changed else "updated" if old_texts[path] else "made"
        rows.append({"file": str(path), "change": change})
    answer = AgentFiles.model_validate({"folder": str(here), "files": rows, "written": yes})
    is_agreed = yes
    if not as_json:
        answer.show(screen)
        is_agreed = yes or (bool(changed) and screen.confirm("Write that?"))
        if changed and not is_agreed:
            screen.say("nothing was written; to do it: add --yes")
    for path in changed if is_agreed else ():
        try:
            (here / path).parent.mkdir(parents=True, exist_ok=True)
            write_atomic((here / path).resolve(), new_texts[path])
        except OSError as error:
            raise file_error(here / path, "written", error) from error
    if as_json:
        screen.data(to_json(answer))
    return ExitCode.OK if is_agreed or not changed else ExitCode.USAGE

"""SKILL.md and a section of AGENTS.md, from the table of commands and a template."""

from inspect import Parameter
from pathlib import Path

from loop import __version__
from loop.base.errors import ERROR_CODES, EXIT_CODES
from loop.base.places import shipped
from loop.cli import ALL
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

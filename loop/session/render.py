"""The report of a session: records to a plain view, the view through its template."""

from dataclasses import dataclass
from pathlib import Path

from loop.report.figures.svg import Figure
from loop.report.templates import Room, environment, fitted
from loop.session.view import ReportInput, View, view

TEMPLATE = "report.md.j2"


@dataclass(frozen=True)
class Rendered:
    """A report, and the figures that it shows."""

    text: str
    figures: tuple[Figure, ...] = ()


def render_session(templates: Path, given: ReportInput) -> Rendered:
    """The report of a session as Markdown, with its figures. `templates`: the folder of report.md.j2."""
    shown = view(given)
    text = fitted(lambda room: _render(templates, shown, room))
    return Rendered(text, shown.pictures.drawn)


def _render(templates: Path, shown: View, room: Room) -> str:
    return environment(templates, room).get_template(TEMPLATE).render(view=shown)

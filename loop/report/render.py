"""A view through its template: Jinja2 with every unknown name an error."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loop.model.history import History
from loop.model.record import Finished, SessionRecord
from loop.report import markdown
from loop.report.course import Recalled
from loop.report.view import view

TEMPLATE = "report.md.j2"


def render_report(
    templates: Path,
    record: SessionRecord,
    finished: Sequence[Finished],
    earlier: Sequence[SessionRecord] = (),
    histories: Sequence[History] = (),
    recalled: Recalled = lambda record: (),
    calibration: str = "",
) -> str:
    """The report of a session as Markdown. `templates`: the folder of report.md.j2."""
    template = environment(templates).get_template(TEMPLATE)
    return template.render(view=view(record, finished, earlier, histories, recalled, calibration))


def environment(templates: Path) -> Environment:
    """Jinja2 for Markdown: what a template prints goes through `text`, `line`, `code`, `block` or `table`."""
    made = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "text": markdown.prose,
        "line": markdown.paragraph,
        "code": markdown.code,
        "block": markdown.block,
        "table": markdown.table,
    }
    return made

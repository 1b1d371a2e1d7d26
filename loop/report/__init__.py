"""The report of a session: records to a plain view to Markdown."""

from loop.report.render import Rendered, render_report, render_session

__all__ = ["Rendered", "render_report", "render_session"]

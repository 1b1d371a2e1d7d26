"""The report of a session: records to a plain view to Markdown."""

from loop.report.render import Rendered, render_session
from loop.report.view import ReportInput

__all__ = ["Rendered", "ReportInput", "render_session"]

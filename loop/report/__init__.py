"""The report of a session: records to a plain view to Markdown."""

from loop.report.render import render_report

__all__ = ["render_report"]

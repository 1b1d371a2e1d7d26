"""The report as one HTML file that needs nothing else: what the Markdown says, with its figures inside."""

from loop.report.html.page import page as page

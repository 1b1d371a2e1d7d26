"""Figures of a session as SVG: pure, and the same on every machine."""

from loop.report.figures.svg import Figure as Figure

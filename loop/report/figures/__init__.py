"""Figures of a session as SVG: pure, and the same on every machine."""

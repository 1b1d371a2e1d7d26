"""Run GPU-kernel optimisation sessions, and learn from them."""

__version__ = "0.2.0"

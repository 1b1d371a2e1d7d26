"""Run GPU-kernel optimisation sessions, and learn from them."""

__version__ = "0.1.0"

"""Reads and checks YAML definitions. Nothing in this room executes them.

Begin with `definitions` (the target's folder, patterns and plans), then `targets` (a manifest,
checked for consistency). One reading reports all mistakes of a file with line and column. `rates`
reads prices. `trust` stores what the user allowed to run, and reads what a command's sender says.
"""

"""Reads and checks YAML definitions. Nothing in this room executes them.

Begin with `definitions` (patterns and plans), then `targets` (a manifest, checked for consistency). One
reading reports all mistakes of a file with line and column. `rates` reads prices.

- `trust`: stores the hash of definitions that the user allowed to run commands.
- `hosted`: what the sender tells a command that it sends to another machine.
"""

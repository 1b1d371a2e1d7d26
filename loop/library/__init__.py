"""Folders of YAML to definitions: read, checked, never executed.

`definitions` reads patterns and plans, `targets` a manifest, `rates` prices. Every mistake of a file is
found in one reading and named with line and column. `targets` checks workloads, formulas, tolerances,
builds and tuning against each other; `earlier` reads a manifest of an earlier format. `trust` asks before
foreign definitions run commands: it remembers the hash of what was allowed. `hosted` is what a command that
was sent to another machine is told. `tuned` puts the best values of a search into the manifest, and leaves
the rest of the text alone.

Begin with `definitions`, then `targets`.
"""

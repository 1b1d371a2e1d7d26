"""Tasks in somebody else's format, read without running or importing anything of theirs.

Begin with `table`: the formats that `loop` knows, how a path is recognised, and which file reads each. A reader
gives a `ForeignTask` (`model`): cases, entry, tolerance and timing rule. `hindrances` says what a task needs
and this machine has not; `command` prints both: `loop targets inspect PATH`. A mistake in somebody's file is a
DefinitionError with file, line and column.
"""

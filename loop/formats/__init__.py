"""Foreign tasks: tasks in formats of other projects, read without running or importing their code.

Begin with `table`: it lists the formats, recognises a path's format, and makes a target of a task.
`kernelbench`, `gpumode` and `flashinfer` read a task into a `ForeignTask` (`model`): cases, entry, tolerance and
timing rule. `flashinfer` has two dialects. `theirs` runs a format's own evaluator, compares its verdict with that
of `loop`, and explains differences. A mistake in a task's file is a DefinitionError with file, line and column.
"""

"""Foreign tasks: tasks in formats of other projects, read without running or importing their code.

Begin with `table`: it lists the formats, recognises a path's format, and makes a target of a task.
`kernelbench`, `gpumode` and `flashinfer` (two dialects) read a task into a `ForeignTask` (`model`):
cases, entry, tolerance and timing rule. `theirs` runs a format's own evaluator, compares its
verdict with that of `loop`, and explains differences. A mistake in a file is a DefinitionError.
"""

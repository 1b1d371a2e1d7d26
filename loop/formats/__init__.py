"""Tasks in somebody else's format, read without running or importing anything of theirs.

Begin with `table`: the formats that `loop` knows, how a path is recognised, and the target made of a task.
`kernelbench`, `gpumode` and `flashinfer` read tasks and give a `ForeignTask` (`model`): cases, entry, tolerance
and timing rule; the last has two dialects, and `flashinfer_target` makes its targets. `theirs` asks a format's own
evaluator, says whether two verdicts agree, and why not; `evaluators` has a row for each format. A mistake in
somebody's file is a DefinitionError with file, line and column (`python_text`).
"""

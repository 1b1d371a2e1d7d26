"""What holds a kernel back, and what a GPU that is not at hand would do with it.

`actions` profiles each variant on its worst workload: roofline, launch, compiler, counters. `bottleneck` walks the
pattern's decision tree with these facts. An unknown fact is never zero: a rule that reads one does not match. It
also says what gain a leaf promises, and what came of such promises. `profile` asks the compiler, ncu and torch's
profiler; `roof` measures what a processor reaches, and says what a call comes to of that.

`resource_actions` compiles for a GPU, judges budgets and writes that part of the report. `inspection` gathers the
compiler's report and the launches that the host code makes in a dry run. `launch_limits` has the arithmetic of
occupancy, and compares pieces of work with places for them. `promises` checks what sources refuse, and hold.

Begin with `actions` or `resource_actions`.
"""

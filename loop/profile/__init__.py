"""The bottleneck of each kernel, and what a GPU that is not at hand would do with it.

Begin with `actions` or `resource_actions`. `actions` profiles each variant on its worst workload:
roofline, launch, compiler report, hardware counters. It walks the pattern's decision tree with the
facts. An unknown fact is never zero: a rule that reads one does not match. `profile` runs
the compiler, ncu and torch's profiler, holds the roofline and measures a processor's.

`resource_actions` compiles for a GPU, reads the compiler's report, asks the host code in a dry run
what it launches, checks budgets and writes that part of the report.
`launch_limits` computes occupancy. `promises` checks that bad configurations do not compile, and
that template instances exist.
"""

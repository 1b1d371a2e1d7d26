"""What holds a kernel back, and what a GPU that is not at hand would do with it.

`actions` profiles each variant on its worst workload: roofline, launch, compiler, counters. `bottleneck` walks the
pattern's decision tree with these facts. An unknown fact is never zero: a rule that reads one does not match.
`promised` says what gain a leaf promises, and what came of such promises.
`device_counters` counts on a GPU, by ncu; `profile` asks the compiler, torch's profiler.

`resource_actions` compiles for a GPU and judges budgets. `inspection` gathers the compiler's report, and the
launches that the host code makes in a dry run. `launch_limits` joins both, and has the arithmetic of occupancy.
`parallelism` compares pieces of work with places for them. `promises` checks what sources claim to hold.

Begin with `actions` or `resource_actions`. `section` and `resources_section` write the report.
"""

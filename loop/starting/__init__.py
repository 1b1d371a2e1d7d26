"""`loop init` writes a first target for a function, module or kernel.

Begin with `command`, which reads the command line. `program` runs in a process of its own, which
imports torch and the user's module. `choices` lists possible arguments of each parameter. `facts`
makes the Python files with one choice of each, calls them, derives sizes, workloads and tolerance,
and writes target.yaml. `source` parses a C kernel, and writes its entry function.
"""

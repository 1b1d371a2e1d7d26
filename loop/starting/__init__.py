"""`loop init` writes a first target for a function, module or kernel.

Begin with `command`. `options` reads the command line. `program` runs in a separate process, which
imports torch and the user's module. `choices` lists possible arguments of each parameter, by
annotation, name and default. `trial` makes the Python files with one choice of each, and calls
them. `facts` derives sizes, workloads and tolerance, and `manifest` writes target.yaml. `c_text` parses a C
kernel, and `source` writes its entry function.
"""

"""`loop init` writes a first target for a function, module, kernel or program.

Begin with `command`. It runs `program` in a separate process, which imports torch and the user's module and
tries the function. `choices` lists possible arguments of each parameter, by annotation, name and default. `facts`
calls the function with them and derives workloads and tolerance. `texts` makes the Python files. `c_text`
parses a C kernel, and `source` writes its entry function. `manifest` chooses sizes and writes target.yaml.
"""

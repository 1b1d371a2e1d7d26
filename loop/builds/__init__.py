"""From sources to libraries: build ids, the cache of builds, and what compilers report.

Begin with `build`. A build id covers every file that a build read: sources, headers, archives, the compiler, its
assembler and linker, and the libraries that the loader finds. The toolchain lists them. `reads` records each as a
fact, and `known_builds` stores the facts. A cached build is used while all facts hold; no compiler runs to see.

- `resources` reads the assembler's report, `binaries` the machine code, `compiler_errors` the compiler's errors.
- `python_builds` does the same for Python variants: a copy of their files, under its hash.
"""

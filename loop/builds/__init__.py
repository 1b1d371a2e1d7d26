"""From sources to libraries: build ids, the cache of builds, and what compilers report.

Begin with `build`. A build id covers every file that a build read: sources, headers, archives, the compiler, its
assembler and linker, and the libraries that the loader finds. The toolchain lists them. `reads` makes facts of
that, and `known_builds` keeps them: a build is used as long as each file is what it was. The compiler does not run
for that. A build of which something cannot be known is made again by each command, which says why.

`resources` reads the assembler's report, `binaries` the machine code, `compiler_errors` what a compiler says.
`layout` tells builds apart that differ only in where their code lies. `python_builds` has the same for variants in
Python: their files, a copy under its hash, and whether two copies hold the same statements.
"""

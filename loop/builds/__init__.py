"""From sources to libraries: build ids, the build cache, and the compiler's reports.

Begin with `build`. A build id covers every file that the build read, as the toolchain lists them:
sources, headers, archives, compiler, assembler, linker, loaded libraries. A Python variant's build
is a copy of its files. `known_builds` records a fact about each file. A cached build is valid while
all its facts hold, so no compiler has to run. `resources` reads the assembler's report.
"""

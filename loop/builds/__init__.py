"""From sources to libraries: build ids, the cache of builds, and what compilers report.

Begin with `build`: a build id covers every file that a build read, and the toolchain lists them: sources, headers,
archives, the compiler, its assembler and linker, and the libraries that the loader finds. A Python variant is
built by a copy of its files, under their hash. `known_builds` records each file as a fact, and keeps the cache. A
cached build is used while all its facts hold; no compiler runs to see. `resources` reads the assembler's report
and the names in a library.
"""

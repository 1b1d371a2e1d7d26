"""The ways to change what a build reads, one a row."""

from pathlib import Path

from tests.faults.stale_ways import (
    CALLS,
    DATA,
    FLAGGED,
    KERNEL,
    LOADS,
    NAMED,
    PERHAPS,
    SYMBOL,
    Scene,
    Step,
    Way,
    also,
    appears,
    both,
    compiled_header,
    fixed,
    flag,
    header,
    points,
    programs,
    run,
    script,
    swap,
)


def archive(scene: Scene, number: int) -> bytes:
    """An archive with that answer."""
    return scene.archive(number)


def shared(scene: Scene, number: int) -> bytes:
    """A shared library with it."""
    return scene.shared(number)


def linked_object(scene: Scene, number: int) -> bytes:
    """An object with it."""
    return scene.built(number)


def optimised_object(scene: Scene, number: int) -> bytes:
    """An object that is compiled only when it is linked."""
    return scene.built(number, "-flto", "-O2")


def tool(name: str) -> Step:
    """A program of the toolchain in `tools`, which at first only starts the real one."""
    return lambda scene: scene.program(f"tools/{name}", f'#!/bin/sh\nexec /usr/bin/{name} "$@"\n')


def linker(scene: Scene, number: int) -> str:
    """A linker that defines the answer."""
    return f'#!/bin/sh\nexec /usr/bin/ld --defsym=place={number} "$@"\n'


def assembler(scene: Scene, number: int) -> str:
    """An assembler that defines it."""
    return f'#!/bin/sh\nexec /usr/bin/as --defsym VALUE={number} "$@"\n'


def wrapped(scene: Scene, number: int) -> str:
    """A program through which every stage of the compiler is started."""
    case = f'case $program in *cc1plus) set -- -DVALUE={number} "$@";; esac'
    return f'#!/bin/sh\nprogram=$1; shift\n{case}\nexec $program "$@"\n'


def specs(scene: Scene, number: int) -> str:
    """A spec file that defines it."""
    return f"*cc1plus:\n+ -DVALUE={number}\n\n"


def members(scene: Scene) -> None:
    """An archive that only names its members."""
    scene.put("value.o", scene.built(scene.before))
    run(scene.folder, "ar", "rcT", "libh.a", "value.o")


def chained(scene: Scene) -> None:
    """A library that needs another one."""
    scene.put("libg.so", scene.shared(scene.before, "-Wl,-soname,libg.so", call="inner"))
    (scene.folder / "h.c").write_text("int inner(void);\nint value(void) { return inner(); }\n")
    command = ("gcc", "-shared", "-fPIC", "h.c", "-o", "libh.so", "-L.", "-lg", f"-Wl,-rpath,{scene.folder}")
    run(scene.folder, *command)


def chain_changes(scene: Scene) -> None:
    """The library at the end of the chain changes."""
    scene.change("libg.so", scene.shared(scene.after, "-Wl,-soname,libg.so", call="inner"))


def two_places(scene: Scene) -> None:
    """A library in the second of two folders."""
    (scene.folder / "one").mkdir()
    scene.put("two/libh.so", scene.shared(scene.before))


def two_libraries(scene: Scene) -> None:
    """The same library in two folders, with either answer."""
    scene.put("one/libh.so", scene.shared(scene.before))
    scene.put("two/libh.so", scene.shared(scene.after))


def two_archives(scene: Scene) -> None:
    """The same archive in two folders, with either answer."""
    scene.put("one/libh.a", scene.archive(scene.before))
    scene.put("two/libh.a", scene.archive(scene.after))


def two_headers(scene: Scene) -> None:
    """A header in two folders beside the project, each with an answer."""
    scene.put("../one/value.h", scene.define(scene.before))
    scene.put("../two/value.h", scene.define(scene.after))


def two_compilers(scene: Scene) -> None:
    """Programs of the same name in two folders."""
    scene.program("one/cc", script(scene, scene.before))
    scene.program("two/cc", script(scene, scene.after))


def profiled(scene: Scene) -> None:
    """A kernel without a profile; the flags name one."""
    scene.put("value.h", scene.define(scene.before))


def profile_appears(scene: Scene) -> None:
    """A profile of a run of the same source."""
    (scene.folder / "main.cpp").write_text('extern "C" int scale(); int main() { return scale() * 0; }\n')
    generate = ("-fprofile-generate", "-fprofile-update=single", "-O2", "-fPIC")
    include = Path(__file__).parents[2] / "kernels/include"
    run(scene.folder, "g++", *generate, f"-I{include}", "kernel.cpp", "main.cpp", "-o", "main")
    run(scene.folder, "./main")
    (made,) = scene.folder.glob("*kernel.gcda")
    made.rename(scene.folder / "prof-kernel.gcda")


def text_script(scene: Scene, number: int) -> str:
    """A script of the linker that names one of two archives."""
    return f"INPUT(lib{number}.a)\n"


def script_of_linker(scene: Scene) -> None:
    """`libh.so` is a text that names the archive to take."""
    for number in (scene.before, scene.after):
        scene.put(f"lib{number}.a", scene.archive(number))
    scene.put("libh.so", text_script(scene, scene.before))


LINKED = ("-L.", "-lh")
FOUND = ("-L.", "-lh", "-Wl,-rpath,{folder}")
CC = "{folder}/cc"
WAYS = (
    Way("the source", lambda s: s.put("kernel.cpp", FLAGGED.replace("VALUE", str(s.before))),
        lambda s: s.change("kernel.cpp", FLAGGED.replace("VALUE", str(s.after))), source=""),
    Way("a header", *header("value.h")),
    Way("a header beside the project", *header("../shared/value.h"), flags=("-I../shared",)),
    Way("a header that a macro names", *header("odd name.h"), flags=('-DNAME="odd name.h"',), source=NAMED),
    Way("a header that __has_include did not find", lambda s: None, lambda s: s.put("maybe.h", s.define(s.after)),
        flags=("-DBEFORE={before}",), source=PERHAPS),
    Way("a header earlier in the path", *appears("first/value.h", "second/value.h"),
        flags=("-Ifirst", "-Isecond")),
    Way("a header beside the source", *appears("value.h", "second/value.h"), flags=("-Isecond",)),
    Way("a folder of the path that was not there", *appears("late/value.h", "second/value.h"),
        flags=("-Ilater/deeper", "-Ilate", "-Isecond")),
    Way("a header for quotes", *appears("quotes/value.h", "second/value.h"),
        flags=("-iquote", "quotes", "-Isecond")),
    Way("a system header", *header("system/value.h"), flags=("-isystem", "system")),
    Way("a header that goes",
        lambda s: (s.put("a/value.h", s.define(s.before)), s.put("b/value.h", s.define(s.after))),
        lambda s: (s.folder / "a/value.h").unlink(), flags=("-Ia", "-Ib")),
    Way("two folders that exchange their names", two_headers, swap("../one", "../two"),
        flags=("-I../one", "-I../two")),
    Way("a link to a header", *points("inc", "v1", "v2"),
        flags=("-Iinc",)),
    Way("-include", *header("first.h"), flags=("-include", "first.h"), source=FLAGGED),
    Way("-imacros", *header("first.h"), flags=("-imacros", "first.h"), source=FLAGGED),
    Way("a root folder", *header("root/inc/value.h"), flags=("--sysroot={folder}/root", "-I=/inc", "-nostdinc"),
        source=KERNEL.replace('#include "loop_kernel.h"', "").replace("LOOP_EXPORT", 'extern "C"')),
    Way("a precompiled header", *also("value.h", "#define VALUE 0\n", both(compiled_header, "value.h.gch")),
        source='#include "value.h"\n' + FLAGGED),
    Way("CPATH", two_headers, lambda s: None, environment={"CPATH": "{folder}/../one"},
        later={"CPATH": "{folder}/../two"}),
    Way("CPLUS_INCLUDE_PATH", two_headers, lambda s: None, environment={"CPLUS_INCLUDE_PATH": "../one"},
        later={"CPLUS_INCLUDE_PATH": "../two"}),
    Way("a header in CPATH", *header("more/value.h"), environment={"CPATH": "{folder}/more"},
        later={"CPATH": "{folder}/more"}),
    Way("an archive", *both(archive, "libh.a"), flags=LINKED, source=CALLS),
    Way("an archive by its name", *both(archive, "libh.a"), flags=("libh.a",), source=CALLS),
    Way("an archive of links", members, lambda s: s.change("value.o", s.built(s.after)),
        flags=LINKED, source=CALLS, kept=False),
    Way("an archive earlier in the path", lambda s: (s.put("b/libh.a", s.archive(s.before)), s.put("a/x", "")),
        lambda s: s.put("a/libh.a", s.archive(s.after)), flags=("-La", "-Lb", "-lh"), source=CALLS),
    Way("a shared library before its archive", lambda s: s.put("libh.a", s.archive(s.before)),
        lambda s: s.put("libh.so", s.shared(s.after)), flags=FOUND, source=CALLS),
    Way("LIBRARY_PATH", two_archives, lambda s: None, flags=("-lh",), source=CALLS,
        environment={"LIBRARY_PATH": "one"}, later={"LIBRARY_PATH": "two"}),
    Way("an object", *both(linked_object, "h.o"), flags=("h.o",), source=CALLS),
    Way("an object for link-time optimisation", *both(optimised_object, "h.o"), flags=("h.o", "-flto", "-O2"),
        source=CALLS),
    Way("a shared library", *both(shared, "libh.so"), flags=FOUND, source=CALLS),
    Way("a library that a library needs", chained, chain_changes,
        flags=(*FOUND, "-Wl,--allow-shlib-undefined"), source=CALLS),
    Way("LD_LIBRARY_PATH", two_libraries, lambda s: None, flags=("-Lone", "-lh"), source=CALLS,
        environment={"LD_LIBRARY_PATH": "{folder}/one"}, later={"LD_LIBRARY_PATH": "{folder}/two"}),
    Way("a library earlier in the loader's path", two_places, lambda s: s.put("one/libh.so", s.shared(s.after)),
        flags=("-Ltwo", "-lh", "-Wl,-rpath,{folder}/one:{folder}/two"), source=CALLS),
    Way("a library loaded from elsewhere than linked", two_libraries,
        lambda s: s.change("one/libh.so", s.shared(s.after)), flags=("-Ltwo", "-lh", "-Wl,-rpath,{folder}/one"),
        source=CALLS),
    Way("a script of the linker", script_of_linker, lambda s: s.change("libh.so", text_script(s, s.after)),
        flags=LINKED, source=CALLS),
    Way("-Wl,@file", *both(lambda s, n: f"--defsym=place={n}\n", "options"),
        flags=("-Wl,@options",), source=SYMBOL),
    Way("symbols of another file", *both(lambda s, n: f"place = {n};\n", "symbols.ld"), flags=("symbols.ld",),
        source=SYMBOL),
    Way(".incbin", *both(lambda s, n: bytes([n]), "data.bin"), source=DATA % '.incbin \\"data.bin\\"'),
    Way(".include of the assembler", *both(lambda s, n: f".byte {n}\n", "data.s"),
        source=DATA % '.include \\"data.s\\"'),
    Way(".incbin in a folder of -Wa,-I", *both(lambda s, n: bytes([n]), "deep/data.bin"), flags=("-Wa,-Ideep",),
        source=DATA % '.incbin \\"data.bin\\"'),
    Way("a response file", *both(flag, "flags"), flags=("@flags",), source=FLAGGED),
    Way("a response file in another", *also("flags", "@more\n", both(flag, "more")),
        flags=("@flags",), source=FLAGGED),
    Way("a spec file", *both(specs, "own.specs"), flags=("-specs=own.specs",), source=FLAGGED),
    Way("a compiler that is a script", *programs(script, "cc"), source=FLAGGED, compiler=CC, kept=False),
    Way("what a compiler's script reads",
        *fixed("cc", '#!/bin/sh\nexec g++ $(cat flags) "$@"\n', both(flag, "flags")), source=FLAGGED, compiler=CC,
        kept=False),
    Way("a compiler earlier on the PATH", two_compilers, lambda s: None, source=FLAGGED, compiler="cc",
        environment={"PATH": "{folder}/one:{PATH}"}, later={"PATH": "{folder}/two:{PATH}"}, kept=False),
    Way("a compiler that appears on the PATH",
        lambda s: (two_compilers(s), (s.folder / "one/cc").rename(s.folder / "cc")),
        lambda s: (s.folder / "two/cc").rename(s.folder / "one/cc"), source=FLAGGED, compiler="cc",
        environment={"PATH": "{folder}/one:{folder}:{PATH}"}, later={"PATH": "{folder}/one:{folder}:{PATH}"},
        kept=False),
    Way("the assembler", *programs(assembler, "tools/as"), flags=("-B{folder}/tools",),
        source=DATA % ".byte VALUE", kept=False),
    Way("the linker", *programs(linker, "tools/ld"), flags=("-B{folder}/tools",), source=SYMBOL, kept=False),
    Way("a linker that appears", tool("as"),
        lambda s: s.program("tools/ld", linker(s, s.after)), flags=("-B{folder}/tools",),
        source='#include "loop_kernel.h"\nextern "C" __attribute__((weak)) char place;\n'
        "LOOP_EXPORT int scale() { return &place ? (int)(long)&place : {before}; }\n", kept=False),
    Way("-wrapper", *programs(wrapped, "wrap"), flags=("-wrapper", "{folder}/wrap"), source=FLAGGED, kept=False),
    Way("a profile that appears", profiled, profile_appears, answers=False,
        flags=("-fprofile-use", "-dumpdir", "prof-", "-O2"), kept=False),
    Way("the date", *header("value.h"),
        source=KERNEL + "LOOP_EXPORT const char *when() { return __DATE__ __TIME__; }\n",
        kept=False),
    Way("a library that the kernel loads", *both(shared, "late.so"),
        flags=('-DLIBRARY="{folder}/late.so"',), source=LOADS,
        kept=False),
)  # fmt: skip
"""Each is a change after which a build that is used again would be a stale one."""

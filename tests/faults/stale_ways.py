"""Ways to change what a build reads: a kernel answers `before`, and after the change `after`."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

KERNEL = '#include "loop_kernel.h"\n#include "value.h"\nLOOP_EXPORT int scale() { return VALUE; }\n'
CALLS = '#include "loop_kernel.h"\nextern "C" int value();\nLOOP_EXPORT int scale() { return value(); }\n'
NAMED = '#include "loop_kernel.h"\n#include NAME\nLOOP_EXPORT int scale() { return VALUE; }\n'
FLAGGED = '#include "loop_kernel.h"\nLOOP_EXPORT int scale() { return VALUE; }\n'
PERHAPS = (
    '#include "loop_kernel.h"\n#if __has_include("maybe.h")\n#include "maybe.h"\n#else\n#define VALUE BEFORE\n'
    "#endif\nLOOP_EXPORT int scale() { return VALUE; }\n"
)
DATA = (
    '#include "loop_kernel.h"\n__asm__(".data\\nhere: %s\\n.text\\n");\n'
    'extern "C" { extern unsigned char here; }\n'
    "LOOP_EXPORT int scale() { return here; }\n"
)
SYMBOL = (
    '#include "loop_kernel.h"\nextern "C" char place;\nLOOP_EXPORT int scale() { return (int)(long)&place; }\n'
)
LOADS = (
    '#include "loop_kernel.h"\n#include <dlfcn.h>\nLOOP_EXPORT int scale() {\n'
    '  int (*value)() = (int (*)())dlsym(dlopen(LIBRARY, RTLD_NOW), "value");\n  return value();\n}\n'
)
Manner = Callable[[Path, bytes], None]


@dataclass(frozen=True)
class Scene:
    """A project in a folder, with the two answers of its kernel."""

    folder: Path
    before: int
    after: int
    manner: Manner
    """How a file that is there gets its other content."""

    def put(self, name: str, content: str | bytes) -> None:
        """Write a file as it is at first."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def change(self, name: str, content: str | bytes) -> None:
        """Give a file its other content."""
        self.manner(self.folder / name, content.encode() if isinstance(content, str) else content)

    def program(self, name: str, text: str) -> None:
        """Write something that can be run."""
        self.put(name, text)
        (self.folder / name).chmod(0o755)

    def define(self, number: int) -> str:
        """The header that holds the answer."""
        return f"#define VALUE {number}\n"

    def built(self, number: int, *flags: str, call: str = "value", kind: str = "-c") -> bytes:
        """An object, or a shared library, with a function that answers."""
        aside = self.folder.parent / "aside"
        aside.mkdir(exist_ok=True)
        (aside / "value.c").write_text(f"int {call}(void) {{ return {number}; }}\n")
        run(aside, "gcc", kind, "-fPIC", *flags, "value.c", "-o", "made")
        return (aside / "made").read_bytes()

    def shared(self, number: int, *flags: str, call: str = "value") -> bytes:
        """A shared library with that function."""
        return self.built(number, *flags, call=call, kind="-shared")

    def archive(self, number: int) -> bytes:
        """An archive with that function."""
        aside = self.folder.parent / "archive"
        aside.mkdir(exist_ok=True)
        (aside / "value.o").write_bytes(self.built(number))
        (aside / "libh.a").unlink(missing_ok=True)
        run(aside, "ar", "rc", "libh.a", "value.o")
        return (aside / "libh.a").read_bytes()


def run(folder: Path, *command: str) -> None:
    """Run a tool that has to succeed."""
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


Step = Callable[[Scene], object]


@dataclass(frozen=True)
class Way:
    """One way to change what a build reads."""

    name: str
    prepare: Step
    change: Step
    flags: Sequence[str] = ()
    """`{folder}` stands for the project's."""
    source: str = KERNEL
    compiler: str = "g++"
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables at first; `{folder}` as in flags."""
    later: Mapping[str, str] = field(default_factory=dict)
    """Variables afterwards."""
    kept: bool = True
    """Whether the build may be used by the next command."""
    answers: bool = True
    """Whether the change changes the answer, besides the build."""
    needs: str = "g++"


def write(path: Path, content: bytes) -> None:
    """In place."""
    path.write_bytes(content)


def replace(path: Path, content: bytes) -> None:
    """By renaming another file over it."""
    other = path.with_name(path.name + ".new")
    other.write_bytes(content)
    if path.exists():
        shutil.copymode(path, other)
    other.replace(path)


def write_with_old_times(path: Path, content: bytes) -> None:
    """In place, and with the time of change that it had."""
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


MANNERS: tuple[Manner, ...] = (write, replace, write_with_old_times)


def header(name: str) -> tuple[Step, Step]:
    """A header at that place holds the answer."""
    return (
        lambda scene: scene.put(name, scene.define(scene.before)),
        lambda scene: scene.change(name, scene.define(scene.after)),
    )


def appears(name: str, *others: str) -> tuple[Step, Step]:
    """A header is found in `others`, until one at `name` comes before it."""

    def prepare(scene: Scene) -> None:
        (scene.folder / name).parent.mkdir(parents=True, exist_ok=True)
        for other in others:
            scene.put(other, scene.define(scene.before))

    return prepare, lambda scene: scene.put(name, scene.define(scene.after))


def both(make: Callable[[Scene, int], str | bytes], name: str) -> tuple[Step, Step]:
    """A file is made for one answer, then for the other."""
    return (
        lambda scene: scene.put(name, make(scene, scene.before)),
        lambda scene: scene.change(name, make(scene, scene.after)),
    )


def flag(scene: Scene, number: int) -> str:
    """A flag that defines the answer."""
    return f"-DVALUE={number}\n"


def script(scene: Scene, number: int) -> str:
    """A compiler that is a script and defines the answer."""
    return f'#!/bin/sh\nexec g++ -DVALUE={number} "$@"\n'


def programs(make: Callable[[Scene, int], str], name: str) -> tuple[Step, Step]:
    """A program is made for one answer, then for the other."""
    return (
        lambda scene: scene.program(name, make(scene, scene.before)),
        lambda scene: (scene.change(name, make(scene, scene.after)), (scene.folder / name).chmod(0o755)),
    )


def fixed(name: str, text: str, inner: tuple[Step, Step]) -> tuple[Step, Step]:
    """A program that stays, and what it reads."""
    return lambda scene: (scene.program(name, text), inner[0](scene)), inner[1]


def also(name: str, text: str, inner: tuple[Step, Step]) -> tuple[Step, Step]:
    """A file that stays, and what changes."""
    return lambda scene: (scene.put(name, text), inner[0](scene)), inner[1]


def points(link: str, first: str, second: str) -> tuple[Step, Step]:
    """A link to a folder with one answer, then to one with the other."""

    def prepare(scene: Scene) -> None:
        scene.put(f"{first}/value.h", scene.define(scene.before))
        scene.put(f"{second}/value.h", scene.define(scene.after))
        (scene.folder / link).symlink_to(first)

    def change(scene: Scene) -> None:
        (scene.folder / link).unlink()
        (scene.folder / link).symlink_to(second)

    return prepare, change


def swap(one: str, other: str) -> Step:
    """Two paths exchange their names."""

    def change(scene: Scene) -> None:
        (scene.folder / one).rename(scene.folder / "aside")
        (scene.folder / other).rename(scene.folder / one)
        (scene.folder / "aside").rename(scene.folder / other)

    return change


def compiled_header(scene: Scene, number: int) -> bytes:
    """A precompiled header with the answer."""
    aside = scene.folder.parent / "precompiled"
    aside.mkdir(exist_ok=True)
    (aside / "value.h").write_text(scene.define(number))
    flags = ("-std=c++17", "-O0", "-fPIC")
    run(aside, "g++", *flags, "-x", "c++-header", "value.h", "-o", "value.h.gch")
    return (aside / "value.h.gch").read_bytes()

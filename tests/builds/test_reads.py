"""What a build read: seen whatever program looks for it, held against the disk before it is used again."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.builds import build, known_builds
from loop.builds.build import BuildFailed
from loop.machine import machine
from loop.model.measurement import Build
from loop.model.target import CAbiVariant
from tests.targets import build_one, compiled

KERNEL = '#include "loop_kernel.h"\n#include "value.h"\nLOOP_EXPORT int scale() { return VALUE; }\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of a source and a header."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "scale.cpp").write_text(KERNEL)
    (project / "value.h").write_text("#define VALUE 2\n")
    return project


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make any start of a process fail."""

    def start(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("loop.base.processes.Child", start)
    monkeypatch.setattr(subprocess, "run", start)


def forget() -> None:
    """Clear what the process has cached, as a new process would."""
    known_builds.hash_content.cache_clear()
    machine.VERSION_BY_PATH.clear()


def variant(**recipe: Any) -> CAbiVariant:
    """The kernel by a recipe."""
    return CAbiVariant.model_validate(compiled(build={"compiler": "g++", "flags": ["-O0"], **recipe}))


def rebuild(folder: Path, cache: Path, **recipe: Any) -> Build:
    """The build as the next command gets it."""
    forget()
    return build_one(folder, variant(**recipe), cache)


def test_nothing_is_started_where_nothing_changed(folder: Path, tmp_path: Path, request: Any) -> None:
    """The stored list of read files shows that nothing changed; no compiler is started."""
    first = build_one(folder, variant(flags=["-O0", "-march=native"]), tmp_path / "cache")
    request.getfixturevalue("no_compiler")
    second = rebuild(folder, tmp_path / "cache", flags=["-O0", "-march=native"])
    assert (False, True, first.build_id) == (first.cached, second.cached, second.build_id)


def test_a_known_good_whose_libraries_changed_is_not_found_by_its_id(folder: Path, tmp_path: Path) -> None:
    """A build that links another library now is not what was measured then."""

    def library(value: int) -> None:
        (folder / "h.c").write_text(f"int value(void) {{ return {value}; }}\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "h.c", "-o", "libh.so"], cwd=folder, check=True)

    library(2)
    (folder / "value.h").write_text('extern "C" int value();\n#define VALUE value()\n')
    output = build_one(folder, variant(flags=["-L.", "-lh", f"-Wl,-rpath,{folder}"]), tmp_path / "cache")
    assert build.find_build_by_id("right", output.build_id, tmp_path / "cache") is not None
    library(3)
    assert build.find_build_by_id("right", output.build_id, tmp_path / "cache") is None


@pytest.mark.parametrize("times", [1, 99])
@pytest.mark.slow
def test_a_file_that_changes_while_it_is_compiled_is_compiled_again(
    times: int, folder: Path, tmp_path: Path
) -> None:
    """It is compiled again, because its content is unknown; if it keeps changing, the build fails and names it."""
    wait = "case $* in *-shared*) touch now; while test -e now; do sleep 0.01; done;; esac"
    (folder / "cc").write_text(f'#!/bin/sh\ng++ "$@" || exit\n{wait}\n')
    (folder / "cc").chmod(0o755)
    with somebody_edits(folder, times):
        if times == 1:
            output = rebuild(folder, tmp_path / "cache", compiler=str(folder / "cc"))
            assert not output.cached
            assert "value 3" in Path(output.library).read_bytes().decode(errors="replace")
        else:
            with pytest.raises(BuildFailed, match=r"value\.h changes while it is compiled"):
                rebuild(folder, tmp_path / "cache", compiler=str(folder / "cc"))


@contextmanager
def somebody_edits(folder: Path, times: int) -> Iterator[None]:
    """Edit the header `times` times while the compiler waits; later waits only continue."""
    ended = threading.Event()

    def edit() -> None:
        number = 2
        while not ended.wait(0.005):
            if (folder / "now").exists():
                number += 1
                text = f'#define VALUE {number}\nextern const char said[] = "value {number}";\n'
                if number <= 2 + times:
                    (folder / "value.h").write_text(text)
                (folder / "now").unlink()

    thread = threading.Thread(target=edit)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def made_of(recipe: CAbiVariant, folder: Path, cache: Path) -> Build:
    """Its build, as the next command gets it."""
    forget()
    terms: dict[str, Any] = {"cache": cache / "builds", "include": include_folder(), "limit_s": 600.0}
    return run_to_end(build.build("one", recipe, folder, **terms))


CUDA = """
#include "loop_kernel.h"
#include "value.h"
__global__ void kernel(float *x) { x[0] = VALUE; }
LOOP_EXPORT int scale() { kernel<<<1, 1>>>(nullptr); return VALUE; }
"""


@pytest.mark.slow
@pytest.mark.nvcc
def test_what_nvcc_and_its_host_compiler_read_is_seen(folder: Path, tmp_path: Path) -> None:
    """Its many programs, a host compiler that is a script, headers of the device code, files of options."""
    (folder / "scale.cu").write_text(CUDA)
    (folder / "options").write_text("-O1\n")
    (host := tmp_path / "host").write_text('#!/bin/sh\nexec g++ "$@"\n')
    host.chmod(0o755)
    flags = ["-arch=sm_89", "-ccbin", str(host), "--options-file", "options"]
    recipe = CAbiVariant.model_validate(compiled(sources=["scale.cu"], build={"compiler": "nvcc", "flags": flags}))
    builds = [made_of(recipe, folder, tmp_path)]
    assert (True, None) == ((second := made_of(recipe, folder, tmp_path)).cached, second.note)
    for name, text in (
        ("value.h", "#define VALUE 3\n"),
        ("options", "-O2\n"),
        ("../host", '#!/bin/sh\nexec g++ -DMORE "$@"\n'),
    ):
        (folder / name).write_text(text)
        builds.append(made_of(recipe, folder, tmp_path))
    assert [False] * 4 == [output.cached for output in builds]
    assert 4 == len({output.build_id for output in builds})
    shutil.rmtree(tmp_path / "builds")
    assert builds[-1].build_id == made_of(recipe, folder, tmp_path).build_id, "the same files are the same build"


def test_a_copy_beside_another_neighbour_is_another_build(folder: Path, tmp_path: Path) -> None:
    """A copied folder with another `..` is another build, because its sources include from there."""
    (folder / "value.h").write_text('#include "../shared/more.h"\n')
    copy = tmp_path / "worktree" / "project"
    shutil.copytree(folder, copy)
    for place, number in ((tmp_path, 2), (tmp_path / "worktree", 3)):
        (place / "shared").mkdir()
        (place / "shared" / "more.h").write_text(f"#define VALUE {number}\n")
    first, second = (rebuild(place, tmp_path / "cache") for place in (folder, copy))
    assert (False, True) == (second.cached, first.build_id != second.build_id)
    assert rebuild(folder, tmp_path / "cache").cached


def test_files_of_flags_are_followed_into_each_other(tmp_path: Path) -> None:
    """What a nested one says counts as well; two that name each other end."""
    (tmp_path / "outer").write_text("-O2 @inner")
    (tmp_path / "inner").write_text("-wrapper ./run,--x @outer")
    assert {"outer", "inner"} == known_builds.files_in_flags(["@outer", "@missing"], tmp_path).keys()

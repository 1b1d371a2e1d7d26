"""Builds: compiled from the current sources, never twice, or failed with a place."""

import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from loop.base.documents import content_hash, sums
from loop.base.places import include_folder
from loop.base.processes import run_to_end
from loop.builds import build as building
from loop.builds.build import BuildFailed, build, first_error
from loop.gate.kernel import SourceLimits, build_variants, load, sources
from loop.model.measurement import Build
from loop.steps.context import Context, NoArguments, Task
from tests.builds.project import TINY, built, entries, failure, make_variant, write
from tests.makers import make_machine, make_plan
from tests.targets import compiled, open_bench, write_target


def test_a_second_build_comes_from_the_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same library, with the time it once took; also in a job, which has a PYTHONPATH of its own."""
    first = built(folder, tmp_path / "cache")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    second = built(folder, tmp_path / "cache")
    assert (False, True) == (first.cached, second.cached)
    assert first.library == second.library
    assert second.seconds > 0
    assert [first.build_id] == entries(tmp_path / "cache")


@pytest.mark.parametrize("name", ["scale.cpp", "scale.h"])
def test_an_edited_file_gives_another_build(name: str, folder: Path, tmp_path: Path) -> None:
    """Any changed byte of source or header gives another build; restoring the file gives the first one again."""
    before = built(folder, tmp_path / "cache").build_id
    (folder / name).write_text((folder / name).read_text() + "// a comment\n")
    after = built(folder, tmp_path / "cache")
    assert (False, True) == (after.cached, before != after.build_id)
    (folder / name).write_text(TINY[name])
    os.utime(folder / name, (1, 1))
    again = built(folder, tmp_path / "cache")
    assert (True, before) == (again.cached, again.build_id)


def test_the_native_processor_is_part_of_the_build(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache from another processor is not used, also where a file of flags asks for `-march=native`."""
    flag = "@native"
    write(folder, native="-march=native\n")
    before = built(folder, tmp_path / "cache", flags=("-O0", flag))
    assert built(folder, tmp_path / "cache", flags=("-O0", flag)).cached
    monkeypatch.setattr(building, "processor_identity", lambda: "another processor")
    after = built(folder, tmp_path / "cache", flags=("-O0", flag))
    assert (False, True) == (after.cached, before.build_id != after.build_id)


def test_a_damaged_build_is_made_again(folder: Path, tmp_path: Path) -> None:
    """A file that was cut short or replaced is noticed, and the note says so; a build of other sources too."""
    cache = tmp_path / "cache"
    first, optimised = built(folder, cache), built(folder, cache, flags=("-O1",))
    entry = Path(first.library).parent
    for name, data in (
        ("kernel.so", b"\x7fELF and then something else"),
        ("build.json", b""),
        ("build.json", b"{}"),
    ):
        (entry / name).write_bytes(data)
        rebuilt = built(folder, cache)
        assert (False, first.build_id) == (rebuilt.cached, rebuilt.build_id)
        assert "the cached build was damaged: not what was recorded; built again" == rebuilt.note
    shutil.rmtree(entry)
    shutil.copytree(Path(optimised.library).parent, entry)
    assert not built(folder, cache).cached
    assert built(folder, cache).cached
    assert sorted([first.build_id, optimised.build_id]) == entries(cache)


def test_two_clones_do_not_replace_each_others_builds(folder: Path, tmp_path: Path) -> None:
    """With debug information a library holds the names of folders."""
    shutil.copytree(folder, tmp_path / "clone" / "project")
    shutil.copytree(include_folder(), tmp_path / "clone" / "include")

    def both() -> list[Build]:
        places = ((folder, include_folder()), (tmp_path / "clone" / "project", tmp_path / "clone" / "include"))
        variant, cache = make_variant(flags=("-g",)), tmp_path / "cache"
        return [
            run_to_end(building.build("right", variant, place, cache=cache, include=include, limit_s=60.0))
            for place, include in places
        ]

    first, second = both()
    assert first.build_id == second.build_id
    assert first.library != second.library
    assert [True, True] == [output.cached for output in both()]


@pytest.mark.slow
def test_a_forged_record_does_not_pass_the_worker(tmp_path: Path) -> None:
    """A foreign binary whose hash was written into the record is refused when it is loaded: its id is another."""
    target = write_target(tmp_path / "tiny", {"right": compiled(), "other": compiled(build={"flags": ["-O1"]})})
    with open_bench(tmp_path / "tiny", target, tmp_path / "cache") as bench:
        context = make_context(bench, "right", "other")
        right, optimised = run_to_end(build_variants(context, NoArguments())).output.builds
        shutil.copy(optimised.library, right.library)
        record = Path(right.library).parent / "build.json"
        fields = json.loads(sums.without_checksum(record, record.read_bytes()))
        forged = content_hash(Path(right.library).read_bytes())
        sums.write_sealed(record, {**fields, "sha256": forged})
        output = run_to_end(load(make_context(bench, "right"), NoArguments())).output
    expected = f"right stale binary: built from {optimised.build_id[:12]}, the sources are {right.build_id[:12]}"
    assert (False, expected) == (output.ok, output.message)


def make_context(bench: Any, *variants: str) -> Context:
    """The session as the kernel actions see it."""
    plan = make_plan().plan
    return Context(bench, Task(plan, variants, make_machine(), seed=1, folder=bench.folder))


def test_built_variants_load(tmp_path: Path, build_cache: Path) -> None:
    """One that does not compile leaves the others standing, and is named."""
    broken = compiled(sources=["broken.cpp"])
    target = write_target(tmp_path / "tiny", {"right": compiled(), "broken": broken})
    write(tmp_path / "tiny", **{"broken.cpp": "int f() { return }\n"})
    with open_bench(tmp_path / "tiny", target, build_cache) as bench:
        assert run_to_end(load(make_context(bench, "right"), NoArguments())).output.ok
        output = run_to_end(build_variants(make_context(bench, "broken", "right"), NoArguments())).output
    assert (False, ["right"]) == (output.ok, [item.variant for item in output.builds])
    assert output.message.startswith("broken: broken.cpp:1:18: ")


def test_sources_of_two_units_or_with_framework_headers_are_told(tmp_path: Path, build_cache: Path) -> None:
    """The error comes before anything is compiled."""
    two = compiled(sources=["scale.cpp", "more.cpp"])
    target = write_target(tmp_path / "tiny", {"two": two})
    (tmp_path / "tiny" / "ATen").mkdir()
    write(tmp_path / "tiny", **{"more.cpp": '#include "ATen/all.h"\n', "ATen/all.h": "\n"})
    with open_bench(tmp_path / "tiny", target, build_cache) as bench:
        output = run_to_end(sources(make_context(bench, "two"), SourceLimits())).output
    assert (False, 2, ("ATen/all.h",)) == (output.ok, output.units, output.framework_headers)
    assert output.message.startswith("two has 2 translation units: include them from one file; framework headers")


def test_two_builds_at_once_leave_one_whole_entry(folder: Path, tmp_path: Path) -> None:
    """Both succeed; neither takes the other's library away."""
    cache = tmp_path / "cache"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=built, args=(folder, cache)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [0, 0, 0, 0] == [worker.exitcode for worker in workers]
    result = built(folder, cache)
    assert result.cached
    assert [result.build_id] == entries(cache)


def test_what_a_killed_build_left_in_the_cache_is_swept(folder: Path, tmp_path: Path) -> None:
    """The next build removes it; finished entries stay."""
    cache = tmp_path / "cache"
    for name in (".making-abc", "0123"):
        (cache / name).mkdir(parents=True)
        (cache / name / "kernel.so").write_bytes(b"half")
    output = run_to_end(build("x", make_variant(), folder, cache=cache, include=include_folder(), limit_s=60))
    assert {"0123", Path(output.library).parents[1].name} == {path.name for path in cache.iterdir()}
    assert "half" == (cache / "0123" / "kernel.so").read_text()


def test_a_compile_error_is_told_with_its_place(folder: Path, tmp_path: Path) -> None:
    """Only the first error is shown; no unfinished build stays in the cache."""
    write(folder, **{"scale.cpp": TINY["scale.cpp"] + "\nint f() { return missing; }\nint g() { return gone; }\n"})
    failed = failure(folder, tmp_path / "cache")
    assert failed.message.startswith("scale.cpp:5:18: ")
    assert "missing" in failed.message
    assert "gone" in failed.log
    assert [] == entries(tmp_path / "cache")


def test_a_header_whose_name_is_no_text_fails_the_build(folder: Path, tmp_path: Path) -> None:
    """Records hold only UTF-8 text, so the build fails with a message instead of a crash."""
    (folder / os.fsdecode(b"\xff.h")).write_text("")
    (folder / "scale.h").write_bytes(b'#include "\xff.h"\n#define SCALE 2\n')
    failed = failure(folder, tmp_path / "cache")
    assert "the compiler read it, we cannot: No such file or directory" in failed.message
    assert "UTF-8" in failed.hint


def test_a_compiler_that_takes_too_long_is_ended(folder: Path, tmp_path: Path) -> None:
    """The limit is the step's; the hint says how to raise it."""
    slow = tmp_path / "slow-compiler"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo slow 1.0;; *" -M "*) echo "a: scale.cpp";; *) sleep 60;; esac\n'
    )
    slow.chmod(0o755)
    with pytest.raises(BuildFailed, match=r"the compiler was killed after 0\.\d s") as caught:
        run_to_end(
            building.build(
                "right",
                make_variant(compiler=str(slow)),
                folder,
                cache=tmp_path / "cache",
                include=include_folder(),
                limit_s=0.3,
            )
        )
    assert "raise `limit_s` of the step" in caught.value.hint
    assert [] == entries(tmp_path / "cache")


def test_a_compiler_speaks_english_to_us(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers run in an English locale, because `loop` reads their messages."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    polyglot = tmp_path / "polyglot"
    script = (
        'case "$*" in *--version*) echo it 1.0;; *) echo "scale.cpp:1:1: error: in $LC_ALL" >&2; exit 1;; esac'
    )
    polyglot.write_text(f"#!/bin/sh\n{script}\n")
    polyglot.chmod(0o755)
    assert "scale.cpp:1:1: in C" == failure(folder, tmp_path / "cache", compiler=str(polyglot)).message


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            "In file included from a.cpp:1:\nb.h:3:7: error: expected ';'\nb.h:9:1: error: x",
            "b.h:3:7: expected ';'",
        ),
        ('a.cu(12): error: identifier "x" is undefined', 'a.cu:12: identifier "x" is undefined'),
        ("a.cu(3): catastrophic error: cannot open source file", "a.cu:3: cannot open source file"),
        ("nvcc fatal   : Unsupported gpu architecture", "nvcc fatal   : Unsupported gpu architecture"),
        ("/usr/bin/ld: cannot find -lgone: No such file", "/usr/bin/ld: cannot find -lgone: No such file"),
        ("a.cpp:1:1: warning: unused\nall is well", None),
        ("", None),
        (
            "/usr/bin/ld: /tmp/ccNrQK2x.o: in function `main':\nc.cpp:(.text+0xa): undefined reference to `foo'\n",
            "c.cpp:(.text+0xa): undefined reference to `foo'",
        ),
    ],
)
def test_the_first_error_of_a_log_is_found(log: str, expected: str | None) -> None:
    """Logs of g++, clang, nvcc and the linker are read."""
    assert expected == first_error(log)


@pytest.mark.parametrize("line", ["#include <cuda_runtime.h>", "__global__ void scale(float *x) {}"])
def test_a_plain_cuda_source_cannot_be_emulated(folder: Path, tmp_path: Path, line: str) -> None:
    """The remedy is not to find CUDA's header: such a kernel cannot be emulated."""
    (folder / "scale.cpp").write_text(f"{line}\n")
    assert "loop_device.cuh" in failure(folder, tmp_path / "cache").hint

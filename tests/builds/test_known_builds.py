"""The cache of builds: what killed builds left in it goes, and what a compiler says too much of is cut."""

from pathlib import Path

import pytest

from loop.base.places import include_folder
from loop.base.processes import finish
from loop.builds.build import LONGEST, BuildFailed, build, scan
from tests.builds.project import make_variant


def test_what_a_killed_build_left_in_the_cache_is_swept(folder: Path, tmp_path: Path) -> None:
    """By the next build; finished ones stay."""
    cache = tmp_path / "cache"
    for name in (".making-abc", ".old-abc", "0123"):
        (cache / name).mkdir(parents=True)
        (cache / name / "kernel.so").write_bytes(b"half")
    made = finish(build("x", make_variant(), folder, cache=cache, include=include_folder(), limit_s=60))
    assert {"0123", made.build_id, "questions"} == {one.name for one in cache.iterdir()}
    assert "half" == (cache / "0123" / "kernel.so").read_text()


def test_a_long_message_of_a_compiler_is_cut(folder: Path) -> None:
    """What is told is a line; the log has the rest."""
    (folder / "scale.h").write_text(f"#error {'x' * 300_000}\n")
    with pytest.raises(BuildFailed) as caught:
        finish(scan(make_variant(), folder, include_folder()))
    assert LONGEST == len(caught.value.message)
    assert len(caught.value.log) > 100_000

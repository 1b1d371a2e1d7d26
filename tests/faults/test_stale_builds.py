"""A slice of the stale builds: what no list of a preprocessor names."""

from pathlib import Path

import pytest

from tests.faults import stale_builds

SLICE = (
    "an archive",
    ".incbin",
    "a response file in another",
    "a header that __has_include did not find",
    "a library earlier in the loader's path",
    "the assembler",
    "LIBRARY_PATH",
    "the date",
)


@pytest.mark.slow
@pytest.mark.parametrize("way", SLICE)
def test_what_a_build_reads_is_changed_and_the_next_command_sees_it(way: str, tmp_path: Path) -> None:
    """Without a change the build is used again, or says why it is not; after it the kernel is another."""
    case = dict(stale_builds.cases(seed=1))[f"{way}, write_with_old_times"]
    assert "" == case(tmp_path)


def test_every_way_has_a_name_of_its_own_and_draws_are_the_same() -> None:
    """At least thirty ways; a case can be run by its number alone."""
    names = [name for name, _ in stale_builds.cases(seed=1)]
    assert len(names) == len(set(names)) >= 90
    assert names == [name for name, _ in stale_builds.cases(seed=1)]

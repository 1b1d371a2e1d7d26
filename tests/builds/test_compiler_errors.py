"""What compilers say, read for its first error."""

import pytest

from loop.builds.build import first_error


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
    """As g++, clang, nvcc and the linker write it."""
    assert expected == first_error(log)

"""Libraries that differ in layout alone, told from those whose code or data differ."""

import subprocess
from pathlib import Path

import pytest

from loop.builds.layout import same_functions

FIRST = "static __attribute__((noinline)) int first(int a) { for (int i = 0; i < a; i++) a ^= i * 5; return a; }\n"
SECOND = 'const char *second(int a) { return a > 3 ? "large" : "small"; }\n'
ENTRY = "int entry(int a) { return first(a) + first(a + 1); }\n"
DEAD = "int dead(int a) { return a * 77; }\n"
AT_LOADING = "int kept; __attribute__((constructor)) void early(void) { kept = 1; }\n"


def library(folder: Path, text: str) -> Path:
    """What gcc makes of it."""
    made = folder / f"{abs(hash(text))}.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", str(made)]
    subprocess.run(command, input=text, text=True, check=True)
    return made


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (SECOND + FIRST + ENTRY, True),
        (DEAD + FIRST + ENTRY + SECOND, True),
        (FIRST + ENTRY + SECOND.replace("int a", "int b").replace("a >", "b >"), True),
        (FIRST.replace("* 5", "* 7") + ENTRY + SECOND, False),
        (FIRST + ENTRY + SECOND.replace("large", "great"), False),
        (FIRST + ENTRY + SECOND + AT_LOADING, False),
    ],
    ids=["another order", "dead code", "names", "an operation", "data", "run at loading"],
)
def test_layout_alone_is_told_from_code_and_data(tmp_path: Path, text: str, same: bool) -> None:
    """Order, padding and what nothing calls are layout; an instruction, a constant or a constructor is none."""
    known = library(tmp_path, FIRST + ENTRY + SECOND)
    assert same == same_functions(known, library(tmp_path, text), ("", ""))

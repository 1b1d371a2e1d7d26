"""Emulated kernels under AddressSanitizer and UBSan: how they are built and run, and what is told of a fault.

The emulator checks what goes through its functions. A kernel's own arrays, pointers and arithmetic do not.
"""

import re

from loop.base.errors import WorkFailed
from loop.base.processes import finish, run
from loop.calls.faults import LOST, STRAY
from loop.model.causes import Cause
from loop.model.target import CAbiVariant

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g1")
LIBRARIES = ("libasan.so", "libubsan.so")
"""They have to be loaded before Python's own libraries."""
LAST_WORDS = re.compile(
    rf"^\S+: (runtime error: .*)|^SUMMARY: (\w+Sanitizer: .*)|^({LOST}.*)|^{STRAY}(.*)", re.MULTILINE
)
CAUSES: tuple[Cause, ...] = ("", "sanitizer", "sanitizer", "device lost", "outside")
"""The cause that each group of it stands for."""
PLACE = re.compile(r"^(\S+?):(\d+)(?::\d+)?: runtime error", re.MULTILINE)
ASK_LIMIT_S = 10.0


def sanitized(variant: CAbiVariant) -> CAbiVariant:
    """The variant as it is built with the sanitizers."""
    recipe = variant.build.model_copy(update={"flags": (*variant.build.flags, *FLAGS)})
    return variant.model_copy(update={"build": recipe})


def environment(compiler: str) -> dict[str, str]:
    """What a process needs that loads such a build. Raises LoopError when the compiler has no sanitizers."""
    paths = [
        finish(run([compiler, f"-print-file-name={name}"], limit_s=ASK_LIMIT_S)).output.strip()
        for name in LIBRARIES
    ]
    missing = [name for name, path in zip(LIBRARIES, paths, strict=True) if "/" not in path]
    if missing:
        raise WorkFailed(f"{compiler} has no {' and no '.join(missing)}", hint="install the compiler's sanitizers")
    return {"LD_PRELOAD": ":".join(paths), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


def last_words(errors: str) -> tuple[Cause, str]:
    """What a sanitizer, or the process itself, said before it ended, in a line; empty when none did."""
    match = LAST_WORDS.search(errors)
    if match is None:
        return "", ""
    place = PLACE.search(match[0])
    where = f" at {place[1].rpartition('/')[2]}:{place[2]}" if place else ""
    return CAUSES[match.lastindex or 0], f"{match[match.lastindex or 0]}{where}"

"""Do two builds differ only in where their code lies? Then a difference in speed is luck."""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from loop.builds.binaries import LIMIT_S, same_code
from loop.builds.python_builds import same_statements
from loop.model.measurement import Build

FUNCTION = re.compile(r"[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"\s+([0-9a-f]+):\t(.+)$")
PLACE = re.compile(r"\b([0-9a-f]+) <([^>+]+)(\+0x[0-9a-f]+)?>")
"""An address as objdump prints it: the number, the symbol, how far behind it."""
FILLER = re.compile(r"(data16 |cs )*(nop|xchg\s+%ax,%ax|int3)")
PLACED = re.compile(
    r"\.(text|plt|init|fini|eh_frame|dyn|gnu|hash|rela|got|note|symtab|strtab|shstrtab|comment|debug|bss|data\.rel)"
)
"""Sections that hold instructions, addresses or names: all others have to hold the same."""
SECTION = re.compile(r"\s+\d+ (\S+)\s+([0-9a-f]+) ")


Alike = Literal["the same", "moved"]


def alike(first: Build, second: Build) -> Alike | None:
    """`the same` but for comments and names, or only `moved`; None where they differ or cannot be read."""
    paths, ids = (Path(first.library), Path(second.library)), (first.build_id, second.build_id)
    try:
        if not first.compiled:
            same, moved = same_statements(*paths), same_statements(*paths, in_order=False)
        else:
            same = same_code(*paths, ids)
            moved = same or same_functions(*paths, ids)
    except (OSError, subprocess.SubprocessError):
        return None
    return "the same" if same else "moved" if moved else None


def same_functions(first: Path, second: Path, ids: tuple[str, str]) -> bool:
    """Whether one library has every function of the other, and the data are the same.

    Functions in another order, padding between and within them, and functions that nothing calls do not count.
    `ids`: the build ids that they carry. Raises OSError or subprocess.SubprocessError where they cannot be read.
    """
    before, after = (Counter(_functions(library)) for library in (first, second))
    if not before or (before - after and after - before):
        return False
    return _data(first, ids[0]) == _data(second, ids[1])


def _functions(library: Path) -> Iterator[str]:
    """The instructions of each function, without addresses; none where it has no symbols."""
    body: list[tuple[str, str]] = []
    text = _printed("objdump", "-d", "-j", ".text", "--no-show-raw-insn", str(library))
    for line in [*text.splitlines(), "0 <end>:"]:
        if match := INSTRUCTION.match(line):
            body.append((match[1], match[2].strip()))
        elif FUNCTION.match(line) and body:
            yield _without_addresses(body)
            body = []


def _without_addresses(body: list[tuple[str, str]]) -> str:
    """Targets within the function by the number of their instruction, others by their symbol; no padding."""
    number: dict[str, int] = {}
    code: list[str] = []
    for address, text in body:
        number[address] = len(code)
        if not FILLER.match(text):
            code.append(text)

    def target(match: re.Match[str]) -> str:
        if match[1] in number:
            return f"@{number[match[1]]}"
        return "<data>" if match[3] else f"<{match[2]}>"

    return "\n".join(PLACE.sub(target, re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", text)) for text in code)


def _data(library: Path, build_id: str) -> dict[str, object]:
    """What the sections hold that are no code, as bytes in order; of what runs at loading, how much there is."""
    headers = SECTION.findall(_printed("objdump", "-h", str(library)))
    sections: dict[str, object] = {name: size for name, size in headers if name.endswith("_array")}
    names = [name for name, _ in headers if name not in sections and not PLACED.match(name)]
    with tempfile.TemporaryDirectory() as scratch:
        files = {name: Path(scratch) / str(place) for place, name in enumerate(names)}
        options = [f"--dump-section={name}={path}" for name, path in files.items()]
        if options:
            _printed("objcopy", *options, str(library), str(Path(scratch) / "copy"))
        for name, path in files.items():
            content = path.read_bytes() if path.exists() else b""
            sections[name] = Counter(content.replace(build_id.encode(), b"").replace(b"\0", b""))
    return sections


def _printed(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S, text=True, errors="replace")
    return done.stdout

"""Files whose words become flags of a compiler: `@file`, spec files, option files, also those that they name."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

NAMING = re.compile(r"(?:^|,)@(?P<plain>[^,]+)|^--?(?:specs|config|options-file|optf)=(?P<option>.+)")
"""One word that names such files: of g++, of its linker (`-Wl,@file`), of nvcc and of clang."""
BEFORE = ("-specs", "--specs", "--config", "-optf", "--options-file")
"""Words after which the next one names such a file."""


def named_by(words: Iterable[str], folder: Path) -> dict[Path, str]:
    """The files that flags name, and those that these name, with what they hold; relative names are of `folder`.

    One that cannot be read is left out.
    """
    texts: dict[Path, str] = {}
    waiting = [folder / name for name in _names(list(words))]
    while waiting:
        path = waiting.pop()
        try:
            text = path.read_text(errors="surrogateescape") if path not in texts and path.is_file() else None
        except OSError:
            text = None
        if text is not None:
            texts[path] = text
            waiting += [folder / name for name in _names(text.replace('"', " ").replace("'", " ").split())]
    return texts


def _names(words: list[str]) -> Iterator[str]:
    for before, word in zip(["", *words], words, strict=False):
        for match in NAMING.finditer(word):
            yield from (match["plain"] or match["option"]).split(",")
        if before in BEFORE:
            yield from word.split(",")

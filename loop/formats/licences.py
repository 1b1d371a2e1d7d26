"""Under what a task is given away: the nearest licence file above it."""

from pathlib import Path

from loop.formats.model import Licence

FILES = ("license", "licence", "copying")
MOST_BYTES = 64 << 10
KNOWN = {
    "mit license": "MIT",
    "apache license": "Apache-2.0",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "gnu general public": "GPL",
    "mozilla public": "MPL-2.0",
    "reciprocity license": "Researcher Reciprocity",
    "permission is hereby granted, free of charge": "MIT",
    "creative commons": "CC",
}
"""What a licence says in its first lines, and its name."""


def licence_of(path: Path) -> Licence:
    """The licence of a file or folder, searched upwards to the root of its repository."""
    for folder in (path, *path.parents) if path.is_dir() else path.parents:
        files = sorted(
            path for path in folder.iterdir() if path.name.lower().split(".")[0] in FILES and path.is_file()
        )
        if files:
            with files[0].open(errors="replace") as file:
                text = " ".join(file.read(MOST_BYTES).lower().split())[:3000]
            first = min((words for words in KNOWN if words in text), key=text.index, default="")
            return Licence(file=files[0], name=KNOWN.get(first, "unknown"))
        if (folder / ".git").exists():
            break
    return Licence(file=None, name="unknown")

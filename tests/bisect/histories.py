"""Small repositories with a history: a file `speed` whose number a command prints, or a state that it judges."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.repository.test_history import commit
from tests.repository.test_reading import git


def make_history(folder: Path, values: Sequence[str], broken: Mapping[int, str] | None = None) -> list[str]:
    """A commit for each value of the file `state`; where `broken`, a file of that name too. Their hashes."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    found: list[str] = []
    for number, value in enumerate(values):
        place = folder / "broken"
        place.unlink(missing_ok=True)
        if broken and number in broken:
            place.write_text(broken[number])
        found.append(commit(folder, f"commit {number}", value, "state"))
    return found

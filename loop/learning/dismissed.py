"""Drafts that a person does not want: kept with the user's state, so that they are not offered again."""

from pathlib import Path

from pydantic import Field

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.base.locks import locked
from loop.base.places import state_folder
from loop.model.base import Model

NAME = "dismissed-drafts.json"


class Dismissed(Model):
    """The dismissed drafts of all projects."""

    format: int = 1
    """Format number."""
    keys: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Folder of sessions to the hashes of signatures."""


def dismissed(root: Path) -> tuple[str, ...]:
    """Hashes of the signatures dismissed for a folder of sessions. Raises LoopError on a damaged file."""
    return _read().keys.get(str(root.absolute()), ())


def dismiss(root: Path, key: str) -> None:
    """Do not offer a draft again. Raises LoopError where the state folder cannot be written, or is held."""
    path = state_folder() / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LoopError(f"{path.parent}: cannot be made: {error.strerror}", hint="set LOOP_STATE") from error
    with locked(path.with_suffix(".lock")):
        known = _read()
        mine = dict.fromkeys((*known.keys.get(str(root.absolute()), ()), key))
        sums.write_sealed(path, Dismissed(keys={**known.keys, str(root.absolute()): tuple(mine)}))


def _read() -> Dismissed:
    path = state_folder() / NAME
    if not path.exists():
        return Dismissed()
    try:
        return sums.read_sealed(Dismissed, path, "delete it: dismissed drafts are then offered again")
    except OSError as error:
        raise LoopError(f"{path}: cannot be read: {error.strerror}", exit_code=1) from error

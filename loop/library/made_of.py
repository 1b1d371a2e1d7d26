"""What a target was made of: a task in another format. Only a target that loop itself made says so."""

from pathlib import Path

from pydantic import ValidationError

from loop.base.documents import to_json
from loop.base.places import tasks_folder
from loop.model.base import Model

FILE = "made_of.json"
MADE = "# Made by loop of"
"""What its manifest begins with; the content of the task's files follows in that line."""


class MadeOf(Model):
    """The task and the answers of a target."""

    task: str
    """Path of the task."""
    answers: dict[str, str]
    """Names of the answers to their paths."""
    format: str | None
    """The format, where the user named one."""

    def as_text(self) -> str:
        """What is written into the target's folder."""
        return to_json(self.model_dump()) + "\n"


def made_of(folder: Path) -> MadeOf | None:
    """The task of a target in `tasks_folder()`; None for any other folder, whatever it holds."""
    if folder.resolve().parent != tasks_folder().resolve():
        return None
    try:
        return MadeOf.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def called(folder: Path) -> list[str]:
    """What a user calls a target: its folder, or the task of another format and the answers it was made of.

    Words for a command line: after `--` where one could be taken for an option.
    """
    made_from = made_of(folder)
    # Where a format was named, the task alone is not recognised.
    if made_from is None or made_from.format is not None:
        return [str(folder)]
    words = [made_from.task, *made_from.answers.values()]
    return ["--", *words] if any(word.startswith("-") for word in words) else words

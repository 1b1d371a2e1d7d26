"""`loop init`: make a first target from a PyTorch function or module, or a kernel.

`loop` copies the user's files and the local files that they import or include. It calls the function in a
separate process to learn its inputs and outputs. It runs no other code of the user.
"""

import shlex
from pathlib import Path

from pydantic import TypeAdapter

from loop.base.documents import write_atomic
from loop.base.errors import UsageError
from loop.base.places import MANIFEST
from loop.library.definitions import read_file
from loop.machine.machine import machine
from loop.model.base import Printed
from loop.model.target import Target
from loop.report.screen import Screen
from loop.starting.model import InitAnswer, InitRequest
from loop.starting.options import read_options
from loop.workers.program import run_untimed

PROGRAM = "loop.starting.program"
TRIAL_LIMIT_S = 180.0  # Time limit of the process that tries a function.


class MadeTarget(Printed):
    """What `loop init --json` prints: the target that it made."""

    target: str
    files: tuple[str, ...]
    edit: str = ""
    """The file to edit: a copy of the user's kernel, or the function to replace."""
    notes: tuple[str, ...] = ()
    """Facts that were guessed, left at their default or not found."""
    next: tuple[str, ...]

    def show(self, screen: Screen) -> None:
        """Print the files, what was guessed, and the next commands."""
        screen = screen.on_stdout()
        screen.say(f"made {self.target}: {', '.join(self.files)}")
        for note in self.notes:
            screen.say(f"guessed: {note}")
        if self.edit:
            screen.say(f"edit: {self.edit}")
        for command in self.next:
            screen.say(f"next: {command}")


def init(request: InitRequest) -> MadeTarget:
    """Write a target, ready to verify and measure. Raises UsageError if the folder has files, options are missing,
    or the function does not run."""
    folder = request.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = request.command_line(folder=folder / "target")
        raise UsageError(f"{folder}: is there, and not an empty folder", hint=hint)
    read_options(request)  # A mistake is told at once, before the process imports torch.
    terms = TypeAdapter(InitRequest).dump_json(request).decode()
    text = run_untimed(PROGRAM, terms, limit_s=TRIAL_LIMIT_S, folder=Path.cwd())
    answer = InitAnswer.model_validate_json(text)
    if answer.problem:
        raise UsageError(answer.problem, hint=answer.hint)
    ignored = "# Remove the next line to keep sessions, and their reports, in git.\n/sessions/\n"
    files = {**answer.files, ".gitignore": ignored}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / name, text)
    quoted = shlex.quote(str(folder))
    target = read_file(folder / MANIFEST, Target).value
    commands = ["trust", "kernels verify --target", "run session quick --target"]
    if not (target.variants_on("cpu") or target.emulated_variants or machine().gpus):
        commands[1:] = ["kernels resources --gpu sm_89 --target"] if machine().nvcc else []
        commands.append("run session quick --on HOST --target")  # There it can run.
    return MadeTarget(
        target=str(folder.absolute()),
        files=tuple(sorted(files)),
        edit=str(folder / answer.edit) if answer.edit else "",
        notes=answer.notes,
        next=tuple(f"loop {command} {quoted}" for command in commands),
    )

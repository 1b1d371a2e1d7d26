"""`loop init`: make a first target from a PyTorch function or module, or a kernel.

`loop` copies the user's files and the local files that they import or include. It calls the
function in a separate process to learn its inputs and outputs. It runs no other code of the user.
"""

import ast
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from keyword import iskeyword
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from loop.base.documents import did_you_mean, write_atomic
from loop.base.errors import UsageError, WorkFailed
from loop.base.places import MANIFEST
from loop.builds.build import find_used_files
from loop.formats.model import WORKLOAD_NAME
from loop.library.definitions import read_file
from loop.machine.machine import machine
from loop.model.base import Printed
from loop.model.dtypes import ITEM_SIZES
from loop.model.target import Target
from loop.report.screen import Screen
from loop.starting.model import RESERVED_NAMES, InitAnswer, InitRequest, TensorSpec
from loop.starting.source import BUILD_BY_ENDING, UserKernel, read_kernel
from loop.workers.program import run_untimed

PROGRAM = "loop.starting.program"
TRIAL_LIMIT_S = 180.0  # Time limit of the process that tries a function.
LIKE = re.compile(r"(?P<dims>[^:<]*)(:(?P<dtype>\w+))?(<(?P<high>\w+))?")
SIZE = re.compile(r"[A-Za-z]\w{0,63}|[1-9][0-9]{0,9}")
PATH = re.compile(rf"{WORKLOAD_NAME.pattern}(\.{WORKLOAD_NAME.pattern})*")
LETTERS = ("N", "M", "K", "L", "P", "Q", "R", "S")


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
    """Write a target, ready to verify and measure. Raises UsageError if the folder has files,
    options are missing, or the function does not run."""
    folder = request.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = request.command_line(folder=folder / "target")
        raise UsageError(f"{folder}: is there, and not an empty folder", hint=hint)
    read_options(request)  # A mistake is told at once, before the process imports torch.
    start_time = time.monotonic()
    try:
        answer = _try_function(request)
    except WorkFailed:  # torch's conv1d crashes where it finds no memory for long sizes.
        if time.monotonic() - start_time > TRIAL_LIMIT_S / 2:
            raise  # It hangs, and would do so again.
        answer = _try_function(replace(request, tries_long_sizes=False))
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


def _try_function(request: InitRequest) -> InitAnswer:
    """Make the target's files in their own process. Raises WorkFailed if that crashes or hangs."""
    request_json = TypeAdapter(InitRequest).dump_json(request).decode()
    text = run_untimed(PROGRAM, request_json, limit_s=TRIAL_LIMIT_S, folder=Path.cwd())
    return InitAnswer.model_validate_json(text)


@dataclass(frozen=True)
class InitOptions:
    """What the command line says."""

    likes: dict[str, TensorSpec]  # Path of a tensor (`x`, `config.scale`) to its `--like` option.
    fixed_sizes: dict[str, int]  # Dimension that the user gave by number to that number.
    values: dict[str, Any]  # Path of a parameter to its `--set` value.
    kernel: UserKernel | None  # None for a Python function.
    module: str  # Module of the function that is right.
    name: str  # Function or class in the module, as in `softmax`, `Block` or `Scaler.apply`.
    folder: Path  # Folder from which the module is imported.
    files: Mapping[str, Path]
    """Name in the target to each file of the user that is copied, the kernel's own source first."""


def read_options(request: InitRequest, names: Iterable[str] = ()) -> InitOptions:
    """Read the command line, and the kernel's sources. Raises UsageError for a mistake. `names`:
    those of the function's parameters, so that no size given by number is called so."""
    if request.source is None:
        hint = f"loop init {request.folder} --from module:function --like x=N,M"
        raise UsageError("expected --from with a function or a file", hint=hint)
    values = _parse_set(request.values)
    file, colon, function = request.source.rpartition(":")
    path = Path(file if colon else request.source)
    is_kernel = path.suffix in BUILD_BY_ENDING
    kernel = read_kernel(path, function if colon else "") if is_kernel else None
    c_names = [each.name for each in kernel.plain.parameters] if kernel and kernel.plain else []
    likes, fixed_sizes = _parse_like(request.like, [*names, *values, *c_names])
    text = request.reference if kernel else request.source
    if text is None:
        hint = request.command_line("--reference", "module:function")
        raise UsageError("no function says what is right", hint)
    module, _, name = text.partition(":")
    folder = Path(module).parent.absolute() if "/" in module else Path.cwd()
    module = (Path(module).name if "/" in module else module).removesuffix(".py")
    if not all(word.isidentifier() for word in (*module.split("."), *name.split("."))):
        expected = f"expected module:function, or a file that ends in {', '.join(BUILD_BY_ENDING)}"
        raise UsageError(f"{text}: {expected}", "loop init DIR --from torch:relu --like input=N,M")
    used_files = find_used_files([module], folder)
    files = {file: folder / file for file in used_files if file.endswith(".py")}
    module_path = module.replace(".", "/")
    if files.keys().isdisjoint((f"{module_path}.py", f"{module_path}/__init__.py")):
        files = {}  # Installed, or without Python source: nothing to copy.
    if kernel:
        files = {**kernel.files, **files}
    return InitOptions(likes, fixed_sizes, values, kernel, module, name, folder, files)


def _parse_set(texts: Sequence[str]) -> dict[str, Any]:
    """Path to its `--set` value: a Python literal, else the text. Raises UsageError without one."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not PATH.fullmatch(name):
            raise UsageError(f"--set {text!r}: expected NAME=VALUE", "such as --set heads=4")
        try:
            values[name] = ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
        except (ValueError, SyntaxError):
            values[name] = value
    return values


def _parse_like(
    texts: Sequence[str], names: Sequence[str]
) -> tuple[dict[str, TensorSpec], dict[str, int]]:
    """Parse `--like` options, as `x=N,M` or `places=N:int64<V` (indices below V, a size or number):
    path to its tensor, and fixed sizes. A size given by number gets a letter as its name, the same
    for equal ones, but none of `names`, small or capital. Raises UsageError."""
    likes: dict[str, TensorSpec] = {}
    for text in texts:
        path, _, shape = (part.strip() for part in text.partition("="))
        match = LIKE.fullmatch(shape.replace(" ", ""))
        dims = match["dims"].split(",") if match else [""]
        is_path = PATH.fullmatch(path) and not iskeyword(path)
        if not match or not is_path or not all(map(SIZE.fullmatch, dims)):
            hint = "such as --like x=N,M or --like x=64,1000; a type follows: --like places=N:int64"
            hint += "; a size that follows from another, as N+1, gets its own letter, or numbers"
            message = f"--like {text!r}: expected a tensor with its sizes, by name or by number"
            raise UsageError(message, hint)
        dtype = match["dtype"] or ""
        if dtype and dtype not in ITEM_SIZES:
            message = f"--like {text!r}: no type {dtype!r}: {', '.join(ITEM_SIZES)}"
            raise UsageError(message, hint=did_you_mean(dtype, list(ITEM_SIZES)))
        likes[path] = TensorSpec(name=path, dims=tuple(dims), dtype=dtype, high=match["high"] or "")
    all_dims = [dim for like in likes.values() for dim in like.dims]
    used_names = {*names, *likes, *all_dims, *(like.high for like in likes.values())}
    used_names = {name.rpartition(".")[2].lower() for name in used_names}
    more_letters = (f"D{number}" for number in range(len(all_dims) + len(used_names)))
    letters = (*LETTERS, *more_letters)
    free_letters = (letter for letter in letters if letter.lower() not in used_names)
    numbers = dict.fromkeys(filter(str.isdigit, all_dims))
    letter_by_number = {number: next(free_letters) for number in numbers}
    for path, like in likes.items():
        named_dims = tuple(letter_by_number.get(dim, dim) for dim in like.dims)
        likes[path] = like.model_copy(update={"dims": named_dims})
    tensor_names = {path.replace(".", "_") for path in likes}
    for dim in all_dims:
        if dim in tensor_names or dim in RESERVED_NAMES or iskeyword(dim):
            other = "a tensor" if dim in tensor_names else "a word that loop or Python needs"
            raise UsageError(f"--like: `{dim}` is {other} and a size", "call the size otherwise")
    return likes, {letter: int(number) for number, letter in letter_by_number.items()}

"""`loop init`: make a first target from a PyTorch function or module, a kernel or a program.

`loop` copies the user's files and the local files that they import or include. It calls the function in a
separate process to learn its inputs and outputs. It runs no other code of the user.
"""

import ast
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any

from loop.base.documents import did_you_mean, write_atomic
from loop.base.errors import UsageError
from loop.base.places import MANIFEST
from loop.formats.model import WORKLOAD_NAME
from loop.formats.python_text import read_text
from loop.model.base import Printed
from loop.model.dtypes import ITEM_SIZES
from loop.model.workloads import RESERVED_KEYS
from loop.report.screen import Screen
from loop.starting.manifest import manifest
from loop.starting.model import Likes, TensorSpec, TrialResult, TrialTerms
from loop.starting.source import BUILD_BY_ENDING, FirstVariant, PythonSource, identifier, read_kernel
from loop.workers.judge_process import run_untimed

LIKE = re.compile(r"(?P<dims>[^:<]*)(:(?P<dtype>\w+))?(<(?P<high>\w+))?")
SIZE = re.compile(r"[A-Za-z]\w{0,63}|[1-9][0-9]{0,9}")
PATH = re.compile(rf"{WORKLOAD_NAME.pattern}(\.{WORKLOAD_NAME.pattern})*")
GENERATOR_NAMES = ("seed", "device", "drawn")
"""Names of a generator's own parameters, which no size may have."""
LETTERS = ("N", "M", "K", "L", "P", "Q", "R", "S")
PROGRAM = "loop.starting.program"
TRIAL_LIMIT_S = 180.0  # Time limit of the process that tries a function.
MODULE_ROLES = ("reference", "mine", "inputs")
"""Python modules that a target may have: what is right, the variant, and the generator of inputs."""


@dataclass(frozen=True)
class InitRequest:
    """The arguments of `loop init`."""

    folder: Path
    source: str | None = None
    """`module:function`, or a file of C, C++ or CUDA."""
    command: str | None = None
    like: Sequence[str] = ()
    """Tensor shapes, as in `x=N,M`, `x=64,1000` or `places=N:int64<V`."""
    values: Sequence[str] = ()
    """Values of other parameters, as in `heads=4` or `config.eps=1e-5`."""
    reference: str | None = None
    """`module:function` of the reference, for a kernel or a program."""

    def command_line(self, folder: Path, *more: str) -> str:
        """The same command line for another folder and with more options, to print."""
        words = ["--from", self.source] if self.source else ["--command", self.command or "CMD"]
        words += ["--reference", self.reference] if self.reference else []
        words += [word for text in self.like for word in ("--like", text)]
        words += [word for text in self.values for word in ("--set", text)]
        return shlex.join(["loop", "init", str(folder), *words, *more])


class MadeTarget(Printed):
    """What `loop init --json` prints: the target that it made."""

    target: str
    files: tuple[str, ...]
    edit: str = ""
    """The file to edit: a copy of the user's kernel, or the function to replace. Empty for a program."""
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
    """Write a target, ready to verify and measure. Raises UsageError if options are missing."""
    folder = request.folder
    if (request.source is None) == (request.command is None):
        hint = f"loop init {folder} --from module:function --like x=N,M"
        raise UsageError("give either --from or --command", hint=hint)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = request.command_line(folder / "target")
        raise UsageError(f"{folder}: is there, and not an empty folder", hint=hint)
    likes, fixed_sizes = _parse_like(request.like)
    variant = _read_variant(request)
    reference_name = request.reference if variant else request.source
    if reference_name is None:
        hint = request.command_line(folder, "--reference", "module:function")
        raise UsageError("no function says what is right", hint)
    reference = PythonSource.parse(reference_name)
    name = reference.name.rpartition(".")[2]
    function = name if name.islower() and name != "forward" else identifier(reference.name)
    edit = next(iter(variant.copied_files), "") if variant else ""
    copied = {**(variant.copied_files if variant else {}), **reference.files}
    # The user's files keep their names: ours give way.
    module_names = {name: f"{name}_of_target" if f"{name}.py" in copied else name for name in MODULE_ROLES}
    terms = TrialTerms(
        folder=str(reference.folder),
        module=reference.module,
        name=reference.name,
        function=variant.function if variant else function,
        likes=variant.entry_writer.with_dtypes(likes) if variant and variant.entry_writer else likes,
        fixed_sizes=fixed_sizes,
        values=_parse_set(request.values),
        attributes=variant.scalars if variant else None,
        command_line=request.command_line(folder),
        module_names=module_names,
    )
    text = run_untimed(PROGRAM, terms.model_dump_json(), limit_s=TRIAL_LIMIT_S, folder=reference.folder)
    result = TrialResult.model_validate_json(text)
    facts = result.facts
    if facts is None:
        raise UsageError(result.problem, hint=result.hint)
    notes = [*facts.notes]
    texts = {name: read_text(path) for name, path in copied.items()}
    texts |= {f"{module}.py": text for module, text in facts.files.items()}
    if variant is None:
        options = f"module: {module_names['mine']}, function: {function}"
        variant = FirstVariant(function, f"mine: {{kind: python, device: any, {options}}}")
        edit = f"{module_names['mine']}.py"
    elif variant.entry_writer:
        texts[variant.entry_writer.name], entry_notes = variant.entry_writer.write(facts)
        notes += entry_notes
    texts[MANIFEST] = manifest(folder, facts, variant.yaml_line, notes, module_names)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / name, text)
    quoted, files = shlex.quote(str(folder)), sorted(texts)
    commands = (f"trust {quoted}", f"kernels verify --target {quoted}", f"run session quick --target {quoted}")
    next_commands = tuple(f"loop {line}" for line in commands)
    target = str(folder.absolute())
    edit = str(folder / edit) if edit else ""
    return MadeTarget(target=target, files=tuple(files), edit=edit, notes=tuple(notes), next=next_commands)


def _read_variant(request: InitRequest) -> FirstVariant | None:
    """The variant of a kernel or program; None for a Python function. A program's words that name files become
    absolute paths, because it runs in the target's folder."""
    if request.command is None:
        assert request.source is not None
        file, colon, function = request.source.rpartition(":")
        path = Path(file if colon else request.source)
        if path.suffix not in BUILD_BY_ENDING:
            return None
        return read_kernel(path, function if colon else "", _parse_set(request.values))
    try:
        words = shlex.split(request.command)
    except ValueError as error:
        message = f"--command: {request.command!r} cannot be read: {error}"
        raise UsageError(message, hint="close its quotes") from error
    if not words:
        raise UsageError("--command: expected a program, got nothing", hint="--command './program {x} {output}'")
    for index, word in enumerate(words):
        if "{" not in word and Path(word).is_file():
            words[index] = str(Path(word).absolute())
    comment = "# It may also read the environment: LOOP_PATH_x, LOOP_PATH_output, LOOP_CALL and others."
    line = f"{comment}\n  mine: {{kind: command, device: cpu, run: {json.dumps(words)}}}"
    return FirstVariant("computed", line, scalars=tuple(re.findall(r"\{(\w+)\}", request.command)))


def _parse_set(texts: Sequence[str]) -> dict[str, Any]:
    """Path to its `--set` value: a Python literal, else the text itself."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not PATH.fullmatch(name):
            raise UsageError(f"--set {text!r}: expected a name with its value", hint="such as --set heads=4")
        try:
            values[name] = ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
        except (ValueError, SyntaxError):
            values[name] = value
    return values


def _parse_like(texts: Sequence[str]) -> tuple[Likes, dict[str, int]]:
    """Parse `--like` options, as `x=N,M` or `places=N:int64<V`: path to its shapes, and fixed sizes.
    A size given by number gets a letter as its name, equal ones the same. Raises UsageError."""
    specs: list[TensorSpec] = []
    for text in texts:
        path, _, shape = (part.strip() for part in text.partition("="))
        match = LIKE.fullmatch(shape.replace(" ", ""))
        dims = match["dims"].split(",") if match else [""]
        is_reserved = not {*dims}.isdisjoint((*RESERVED_KEYS, *GENERATOR_NAMES))
        is_reserved = is_reserved or any(map(iskeyword, (path, *dims)))
        if not match or is_reserved or not PATH.fullmatch(path) or not all(map(SIZE.fullmatch, dims)):
            hint = "such as --like x=N,M or --like x=64,1000; a type follows: --like places=N:int64"
            raise UsageError(f"--like {text!r}: expected a tensor with its sizes, by name or by number", hint=hint)
        dtype, high = match["dtype"] or "", match["high"] or ""
        if dtype and dtype not in ITEM_SIZES:
            message = f"--like {text!r}: no type {dtype!r}: {', '.join(ITEM_SIZES)}"
            raise UsageError(message, hint=did_you_mean(dtype, list(ITEM_SIZES)))
        specs.append(TensorSpec(name=path, dims=tuple(dims), dtype=dtype, high=high))
    all_dims = [dim for spec in specs for dim in spec.dims]
    letters = (*LETTERS, *(f"D{number}" for number in range(len(all_dims))))
    free_letters = (letter for letter in letters if letter not in all_dims)
    letter_by_number = {dim: next(free_letters) for dim in dict.fromkeys(filter(str.isdigit, all_dims))}
    likes: Likes = {}
    for spec in specs:
        named_dims = tuple(letter_by_number.get(dim, dim) for dim in spec.dims)
        likes[spec.name] = (*likes.get(spec.name, ()), spec.model_copy(update={"dims": named_dims}))
    if ambiguous := {*all_dims} & {path.replace(".", "_") for path in likes}:
        raise UsageError(f"--like: `{min(ambiguous)}` is a tensor and a size", hint="call the size otherwise")
    return likes, {letter: int(number) for number, letter in letter_by_number.items()}

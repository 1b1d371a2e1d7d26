"""`loop init`: a first target of one's own, of a PyTorch function, a compiled kernel or a program.

Files that the user names are copied, with the files beside them that they import or include. Nothing of theirs is
imported or run: functions are read as text.
"""

import ast
import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from loop.base.documents import did_you_mean, to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.places import MANIFEST
from loop.base.screen import Screen
from loop.cli.starting_source import BUILDS, Start, identifier, of_source
from loop.formats.python_text import read_module, read_text
from loop.formats.target import NAMES
from loop.model.exported import MadeTarget
from loop.model.workloads import RESERVED

SIZED = re.compile(r"[A-Za-z]\w{0,63}|[1-9][0-9]{0,9}")
LETTERS = ("N", "M", "K", "L", "P", "Q", "R", "S")
SIZE, ODD = 128, (3, 17, 5, 9)
"""Of dimensions with a name and no number: what is timed, and what a loop over whole tiles gets wrong."""
OUTPUT = "output"
TEXT = """\
# A target of your own. `loop patterns check {path}` lists every mistake in this file with its line.
format: 2
name: {name}
function: {function}
signature:
  inputs: {inputs}                 # dimensions by name
{outputs}
  # attributes: {{eps: {{kind: number, default: 1.0e-6}}}}   # keywords of the reference and of each variant
reference: {{python: "{reference}"}}   # what is right; it is given float64 tensors
baseline: {{python: "{reference}"}}    # what you would otherwise run
tolerance:                        # of one element: atol + rtol * |reference|
  float32: {{atol: 1.0e-4, rtol: 1.0e-4}}
  float16: {{atol: 1.0e-2, rtol: 1.0e-2}}
  bfloat16: {{atol: 1.0e-2, rtol: 1.0e-2}}
dtypes: {{cpu: float32, cuda: float32}}
# flops: "2*N*M"                  # of one call, for the roofline; bytes, too
workloads:
  quick: [{sizes}]
{edges}
variants:
  {variant}
"""


@dataclass(frozen=True)
class InitRequest:
    """What the user asked for."""

    folder: Path
    source: str | None = None
    """`module:function`, or a file of C, C++ or CUDA."""
    command: str | None = None
    like: Sequence[str] = ()
    """A tensor's shape each, as in `x=N,M` or `x=64,1000`."""
    reference: str | None = None
    """`module:function` that is right, for a kernel or a program."""
    json: bool = False


@dataclass(frozen=True)
class _Function:
    """A function of the user's, as its text says it."""

    module: str
    name: str
    files: tuple[Path, ...]
    """Files to copy; none for an installed package."""
    parameters: tuple[str, ...] | None = None
    """None where only importing it would tell."""
    needed: tuple[str, ...] = ()
    """Parameters without a default."""


def init(request: InitRequest, screen: Screen) -> int:
    """Write a target that verifies and measures at once. Raises LoopError for what it cannot read."""
    again = _again(request)
    if (request.source is None) == (request.command is None):
        raise UsageError(
            "give either --from or --command",
            hint=f"loop init {request.folder} --from module:function --like x=N,M",
        )
    if request.folder.exists() and (not request.folder.is_dir() or any(request.folder.iterdir())):
        raise UsageError(
            f"{request.folder}: is there, and not an empty folder", hint=again(request.folder / "target")
        )
    kernel = request.source is None or Path(request.source).suffix in BUILDS
    named = request.reference if kernel else request.source
    right = _function(named) if named else None
    shapes = _shapes(request, right, again(request.folder))
    inputs = {name: shape for name, shape in shapes.items() if name != OUTPUT}
    start = _started(request, right, inputs)
    texts = {**start.texts, "reference.py": _wrapper(right, start.function, inputs, "What is right")}
    copied = {path.name: path for path in (*start.copied, *(right.files if right else ()))}
    if taken := sorted({*texts} & {*copied}):
        raise UsageError(
            f"{copied[taken[0]]}: `loop init` writes a {taken[0]} of its own", hint="rename your file"
        )
    texts |= {name: read_text(path) for name, path in copied.items()}
    texts[MANIFEST] = _manifest(request.folder, start, shapes, kernel)
    request.folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomic(request.folder / name, text)
    _tell(request, sorted(texts), right, screen)
    return ExitCode.OK


def _tell(request: InitRequest, files: list[str], right: _Function | None, screen: Screen) -> None:
    folder = shlex.quote(str(request.folder))
    after = [f"loop trust {folder}", f"loop run session quick --target {folder}"]
    if right is None:
        after.insert(0, f"$EDITOR {folder}/reference.py")
    if request.json:
        made = MadeTarget(target=str(request.folder.absolute()), files=tuple(files), next=tuple(after))
        screen.data(to_json(made))
        return
    screen.say(f"made {request.folder}: {', '.join(files)}")
    screen.say("\n".join(f"next: {line}" for line in after))


def _again(request: InitRequest) -> "_Again":
    words = ["--from", request.source] if request.source else ["--command", request.command or "CMD"]
    words += ["--reference", request.reference] if request.reference else []
    return _Again([*words, *(word for text in request.like for word in ("--like", text))])


@dataclass(frozen=True)
class _Again:
    """The command with something changed, to be printed."""

    words: Sequence[str]

    def __call__(self, folder: Path, *more: str) -> str:
        return shlex.join(["loop", "init", str(folder), *self.words, *more])


def _started(request: InitRequest, right: _Function | None, inputs: Mapping[str, str]) -> Start:
    if request.command is not None:
        return _of_command(request.command, inputs)
    assert request.source is not None
    path = Path(request.source)
    if path.suffix in BUILDS:
        return of_source(path, _named(inputs)[0])
    assert right is not None
    name = identifier(right.name)
    text = _wrapper(right, name, inputs, "Your variant, to be made faster. It begins as the reference")
    return Start(
        name, f"mine: {{kind: python, device: any, module: mine, function: {name}}}", texts={"mine.py": text}
    )


def _of_command(command: str, inputs: Mapping[str, str]) -> Start:
    """A program. Words that are files here become whole paths, because it runs in the target's folder."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command: {command!r} cannot be read: {error}", hint="close its quotes") from error
    if not words:
        raise UsageError("--command: expected a program, got nothing", hint="--command './program {x} {output}'")
    whole = [str(Path(word).absolute()) if "{" not in word and Path(word).is_file() else word for word in words]
    comment = "  # It may also read the environment: LOOP_PATH_x, LOOP_PATH_output, LOOP_CALL and others."
    return Start(
        "computed", f"{comment.strip()}\n  mine: {{kind: command, device: cpu, run: {json.dumps(whole)}}}"
    )


def _function(text: str) -> _Function:
    """The function that `module:function` names, found as Python would find it from here."""
    module, name = _module(text)
    path, own = _found(module)
    if path is None:
        return _Function(module, name, ())
    read = read_module(path)
    if not read.defines(name):
        known = [one.name for one in read.tree.body if isinstance(one, ast.FunctionDef)]
        hint = did_you_mean(name, known) or f"it has {', '.join(known[:8]) or 'none'}"
        raise UsageError(f"{path}: no function `{name}` there", hint=hint)
    files = tuple(_with_imports(path, set())) if own else ()
    function = read.function(name)
    return (
        _Function(module, name, files, *_parameters(function.args)) if function else _Function(module, name, files)
    )


def _module(text: str) -> tuple[str, str]:
    """Module and function; a file in this folder is a module, too."""
    module, _, name = text.partition(":")
    module = module.removesuffix(".py")
    if not all(word.isidentifier() for word in (*module.split("."), name)):
        raise UsageError(
            f"{text}: expected module:function, or a file that ends in {', '.join(BUILDS)}",
            hint="loop init DIR --from torch.nn.functional:gelu --like input=N,M",
        )
    return module, name


def _parameters(given: ast.arguments) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All parameters, and those without a default."""
    places = [one.arg for one in (*given.posonlyargs, *given.args)]
    needed = places[: len(places) - len(given.defaults)]
    needed += [one.arg for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is None]
    return (*places, *(one.arg for one in given.kwonlyargs)), tuple(needed)


def _found(module: str) -> tuple[Path | None, bool]:
    """The file of a module, None for one without text; and whether it is a file here, not an installed package."""
    places: list[str] | None = [str(Path.cwd()), *sys.path]
    whole = ""
    spec = None
    for word in module.split("."):
        whole = f"{whole}.{word}".lstrip(".")
        spec = PathFinder.find_spec(whole, places) if places is not None else None
        if spec is None:
            raise UsageError(
                f"{module}: no module `{whole}` here or among the installed packages",
                hint=f"start the command in the folder of {whole.partition('.')[0]}.py, or pip install it",
            )
        places = list(spec.submodule_search_locations) if spec.submodule_search_locations else None
    path = Path(spec.origin) if spec is not None and spec.origin else None
    if path is None or path.suffix != ".py":
        return None, False
    own = path.is_relative_to(Path.cwd()) and not any(
        one and Path(one) != Path.cwd() and path.is_relative_to(one) for one in sys.path
    )
    if own and "." in module:
        raise UsageError(
            f"{path}: is in a package that is not installed, so no other process finds it",
            hint="pip install -e . and start again, or name a module that stands alone",
        )
    return path, own


def _with_imports(path: Path, seen: set[Path]) -> Iterator[Path]:
    """A file and the modules that it imports from its own folder."""
    seen.add(path)
    yield path
    for name in read_module(path).imports:
        other = path.parent / f"{name}.py"
        if other.is_file() and other not in seen:
            yield from _with_imports(other, seen)


def _shapes(request: InitRequest, right: _Function | None, again: str) -> dict[str, str]:
    """Tensor to its shape as it was given, checked against the parameters of the function."""
    shapes = dict(_shape(text) for text in request.like)
    inputs = [name for name in shapes if name != OUTPUT]
    if right is not None:
        _check_names(right, inputs)
        inputs = [name for name in right.parameters or inputs if name in inputs]
    missing = [name for name in right.needed if name not in shapes] if right else []
    if missing or not inputs:
        raise _unshaped(right, missing, again)
    return {**{name: shapes[name] for name in inputs}, **shapes}


def _unshaped(right: _Function | None, missing: Sequence[str], again: str) -> UsageError:
    """What to say of inputs without a shape."""
    names = ", ".join(f"`{name}`" for name in missing)
    words = " ".join(f"--like {name}=N,M" for name in missing or ["x"])
    said = f"{names} of {right.module}:{right.name} has no shape" if names and right else "no input has a shape"
    return UsageError(said, hint=f"{again} {words}; for a value, write a function that gives it")


def _shape(text: str) -> tuple[str, str]:
    """A tensor's name and its sizes, of `x=N,M`."""
    name, _, shape = (part.strip() for part in text.partition("="))
    words = [word.strip() for word in shape.split(",")]
    if not NAMES.fullmatch(name) or not all(SIZED.fullmatch(word) and word not in RESERVED for word in words):
        raise UsageError(
            f"--like {text!r}: expected a tensor with its sizes, by name or by number",
            hint="such as --like x=N,M or --like x=64,1000",
        )
    return name, " ".join(words)


def _check_names(right: _Function, inputs: Iterable[str]) -> None:
    """Raise UsageError for an input that the function does not take."""
    known = right.parameters
    unknown = [name for name in inputs if known is not None and name not in known]
    if known is not None and unknown:
        said = f"{right.module}:{right.name} has no parameter `{unknown[0]}`: {', '.join(known)}"
        raise UsageError(f"--like {unknown[0]}: {said}", hint=did_you_mean(unknown[0], known))


def _wrapper(right: _Function | None, function: str, inputs: Iterable[str], title: str) -> str:
    """A module with one function that calls the user's; without one, what is to be filled in."""
    names = list(inputs)
    head = f"def {function}({', '.join(names)}):"
    if right is None:
        return (
            f'"""{title}. It is given float64 tensors, and returns one."""\n\n\n{head}\n'
            f'    raise RuntimeError("write down in reference.py what is right")\n'
        )
    called = ", ".join(f"{name}={name}" if right.parameters is not None else name for name in names)
    return (
        f'"""{title}: {right.module}:{right.name}."""\n\nfrom {right.module} import {right.name} as given\n\n\n'
        f"{head}\n    return given({called})\n"
    )


def _manifest(folder: Path, start: Start, shapes: Mapping[str, str], kernel: bool) -> str:
    """The text of target.yaml."""
    named, sizes = _named(shapes)
    output = named.pop(OUTPUT, next(iter(named.values())) if kernel else None)
    text = f"  outputs: {{output: {output}}}"
    if output is None:
        text = "  # outputs: {output: N M}       # name its dimensions, and `loop kernels prove-gate` works, too"
    elif OUTPUT not in shapes:
        text += "         # as the first input; mend it where that is not so"
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.absolute().name.lower()).strip("-_")[:48]
    return TEXT.format(
        path=MANIFEST,
        name=name if name[:1].isalpha() else f"target-{name}".rstrip("-"),
        function=start.function,
        inputs=_flow(named),
        outputs=text,
        reference=f"reference:{start.function}",
        sizes=_flow(sizes),
        edges=_edges(shapes, sizes),
        variant=start.variant,
    )


def _edges(shapes: Mapping[str, str], sizes: Mapping[str, int]) -> str:
    """The line with sizes that are only checked; a remark where all sizes are given."""
    free = [one for one in sizes if any(one in shape.split() for shape in shapes.values())]
    if not free:
        return "  # edges: [...]                  # name the sizes at which a kernel may go wrong: 1, 63 and 65"
    odd = dict(zip(free, itertools.cycle(ODD), strict=False))
    return f"  edges: [{_flow({**sizes, **odd})}]   # only checked: no tile divides them; add those of your kernel"


def _named(shapes: Mapping[str, str]) -> tuple[dict[str, str], dict[str, int]]:
    """Shapes by names of dimensions, and the size of each: equal numbers are one dimension."""
    words = [word for shape in shapes.values() for word in shape.split()]
    sizes = {word: SIZE for word in words if not word.isdigit()}
    letters = [*LETTERS, *(f"D{n}" for n in range(len(words)))]
    free = iter([one for one in letters if one not in sizes])
    numbers = {word: next(free) for word in dict.fromkeys(word for word in words if word.isdigit())}
    sizes |= {name: int(word) for word, name in numbers.items()}
    return {key: " ".join(numbers.get(one, one) for one in shape.split()) for key, shape in shapes.items()}, sizes


def _flow(values: Mapping[str, object]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"

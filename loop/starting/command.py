"""`loop init`: make a first target from a PyTorch function or module, a kernel or a program.

`loop` copies the user's files and the local files that they import or include. It calls the function in a
separate process to learn its inputs and outputs. It runs no other code of the user.
"""

import ast
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any

from loop.base.documents import did_you_mean, to_json, write_atomic
from loop.base.errors import UsageError
from loop.base.places import MANIFEST
from loop.base.processes import python_path, run, run_to_end
from loop.base.screen import Screen
from loop.formats.python_text import read_text
from loop.formats.target import NAMES
from loop.model.dtypes import ITEM_SIZES
from loop.model.exported import MadeTarget
from loop.model.workloads import RESERVED
from loop.starting.manifest import manifest
from loop.starting.source import BUILDS, Named, Start, function_at, identifier, of_source
from loop.workers.judge_process import UNTIMED_ENVIRONMENT

Likes = dict[str, list[dict[str, Any]]]
"""Path of a tensor to its shapes, each with `dims`, `dtype` and `high` from a `--like` option."""
LIKE = re.compile(r"(?P<dims>[^:<]*)(:(?P<dtype>\w+))?(<(?P<high>\w+))?")
SIZED = re.compile(r"[A-Za-z]\w{0,63}|[1-9][0-9]{0,9}")
PATH = re.compile(rf"{NAMES.pattern}(\.{NAMES.pattern})*")
OWN = ("seed", "device", "drawn")
"""Names of a generator's own parameters, which no size may have."""
LETTERS = ("N", "M", "K", "L", "P", "Q", "R", "S")
LIMIT_S = 180.0
FILES = ("reference", "mine", "inputs")


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
    json: bool = False

    def again(self, folder: Path, *more: str) -> str:
        """The same command line for another folder and with more options, to print."""
        words = ["--from", self.source] if self.source else ["--command", self.command or "CMD"]
        words += ["--reference", self.reference] if self.reference else []
        words += [word for text in self.like for word in ("--like", text)]
        words += [word for text in self.values for word in ("--set", text)]
        return shlex.join(["loop", "init", str(folder), *words, *more])


def init(request: InitRequest, screen: Screen) -> None:
    """Write a target, ready to verify and measure. Raises UsageError if options are missing."""
    folder = request.folder
    if (request.source is None) == (request.command is None):
        hint = f"loop init {folder} --from module:function --like x=N,M"
        raise UsageError("give either --from or --command", hint=hint)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder}: is there, and not an empty folder", hint=request.again(folder / "target"))
    likes, fixed = _parse_like(request.like)
    start = _read_variant(request)
    source = request.reference if start else request.source
    if source is None:
        raise UsageError("no function says what is right", request.again(folder, "--reference", "module:function"))
    right = function_at(source)
    copied = {**(start.copied if start else {}), **right.files}
    names = {stem: f"{stem}_of_target" if f"{stem}.py" in copied else stem for stem in FILES}
    facts = _tried(request, right, start, {"likes": likes, "fixed": fixed, **names})
    function = facts["function"]
    python = f"mine: {{kind: python, device: any, module: {names['mine']}, function: {function}}}"
    variant, entries, guessed = (start or Start(function, python)).bound(facts)
    notes = [*facts["notes"], *guessed]
    texts = {name: read_text(path) for name, path in copied.items()}
    texts |= {**{f"{name}.py": text for name, text in facts["files"].items()}, **entries}
    texts[MANIFEST] = manifest(folder, facts, variant, notes, names)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / name, text)
    place, files = shlex.quote(str(folder)), sorted(texts)
    words = (f"trust {place}", f"kernels verify --target {place}", f"run session quick --target {place}")
    after = tuple(f"loop {line}" for line in words)
    if request.json:
        answer = MadeTarget(target=str(folder.absolute()), files=tuple(files), notes=tuple(notes), next=after)
        screen.data(to_json(answer))
        return
    screen.say(f"made {folder}: {', '.join(files)}")
    screen.say("\n".join([*(f"guessed: {note}" for note in notes), *(f"next: {line}" for line in after)]))


def _read_variant(request: InitRequest) -> Start | None:
    """The variant of a kernel or program; None for a Python function.

    A program's words that name files become absolute paths, because it runs in the target's folder.
    """
    if request.command is None:
        assert request.source is not None
        file, colon, function = request.source.rpartition(":")
        path = Path(file if colon else request.source)
        if path.suffix not in BUILDS:
            return None
        return of_source(path, function if colon else "", _parse_set(request.values))
    try:
        words = shlex.split(request.command)
    except ValueError as error:
        message = f"--command: {request.command!r} cannot be read: {error}"
        raise UsageError(message, hint="close its quotes") from error
    if not words:
        raise UsageError("--command: expected a program, got nothing", hint="--command './program {x} {output}'")
    whole = [str(Path(word).absolute()) if "{" not in word and Path(word).is_file() else word for word in words]
    comment = "# It may also read the environment: LOOP_PATH_x, LOOP_PATH_output, LOOP_CALL and others."
    text = f"{comment}\n  mine: {{kind: command, device: cpu, run: {json.dumps(whole)}}}"
    return Start("computed", text, scalars=tuple(re.findall(r"\{(\w+)\}", request.command)))


def _tried(request: InitRequest, right: Named, start: Start | None, terms: dict[str, Any]) -> dict[str, Any]:
    """Try the function in a process; its facts (`facts_of`) and Python files. Raises UsageError."""
    if start is None:
        name = right.name.rpartition(".")[2]
        terms["function"] = name if name.islower() and name != "forward" else identifier(right.name)
        terms["attributes"] = None
    else:
        terms["function"], terms["attributes"] = start.function, start.scalars
        for name, dtype in (start.glue.types([*terms["likes"]]) if start.glue else {}).items():
            for shape in terms["likes"][name]:
                shape["dtype"] = shape["dtype"] or dtype
    terms |= {"folder": str(right.folder), "module": right.module, "name": right.name}
    terms |= {"given": _parse_set(request.values), "compiled": start is not None}
    env = {
        "PYTHONPATH": python_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCH_COMPILE_DISABLE": "1",
        **UNTIMED_ENVIRONMENT,
    }
    with tempfile.TemporaryDirectory(prefix="loop-init-", ignore_cleanup_errors=True) as scratch:
        terms_file, result_file = Path(scratch) / "terms.json", Path(scratch) / "result.json"
        terms_file.write_text(json.dumps(terms))
        command = (sys.executable, "-m", "loop.starting.program", str(terms_file), str(result_file))
        done = run_to_end(run(command, limit_s=LIMIT_S, cwd=right.folder, env=env, note="trying it"))
        if not result_file.is_file():
            last = (done.errors.strip().splitlines() or [done.ending])[-1]
            raise UsageError(f"{right.module}:{right.name} ended the process that tried it: {last}")
        facts: dict[str, Any] = json.loads(result_file.read_text())
    if "lacks" in facts:
        words = [word for text in facts["like"] for word in text.split()]
        more = request.again(request.folder, *words) if words else ""
        raise UsageError(facts["lacks"], hint=f"{more}{facts['hint']}" or None)
    return {**facts, "function": terms["function"]}


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
    """Parse `--like` options such as `x=N,M` or `places=N:int64<V`: path to shapes, and fixed sizes.

    A size given by number gets a letter as its name; equal numbers share one name.
    """
    shapes: list[dict[str, Any]] = []
    for text in texts:
        name, _, shape = (part.strip() for part in text.partition("="))
        read = LIKE.fullmatch(shape.replace(" ", ""))
        words = read["dims"].split(",") if read else [""]
        reserved = any(word in (*RESERVED, *OWN) for word in words) or any(map(iskeyword, (name, *words)))
        if not read or reserved or not PATH.fullmatch(name) or not all(map(SIZED.fullmatch, words)):
            hint = "such as --like x=N,M or --like x=64,1000; a type follows: --like places=N:int64"
            raise UsageError(f"--like {text!r}: expected a tensor with its sizes, by name or by number", hint=hint)
        if read["dtype"] and read["dtype"] not in ITEM_SIZES:
            known = did_you_mean(read["dtype"], list(ITEM_SIZES))
            raise UsageError(f"--like {text!r}: no type {read['dtype']!r}: {', '.join(ITEM_SIZES)}", hint=known)
        shapes.append({"dims": words, "dtype": read["dtype"] or "", "high": read["high"] or "", "path": name})
    every = [word for like in shapes for word in like["dims"]]
    letters = (*LETTERS, *(f"D{n}" for n in range(len(every))))
    free = (letter for letter in letters if letter not in every)
    numbers = {word: next(free) for word in dict.fromkeys(filter(str.isdigit, every))}
    likes: Likes = {}
    for like in shapes:
        dims = [numbers.get(word, word) for word in like["dims"]]
        likes.setdefault(like["path"], []).append({**like, "dims": dims})
    if same := {*every} & {name.replace(".", "_") for name in likes}:
        raise UsageError(f"--like: `{min(same)}` is a tensor and a size", hint="call the size otherwise")
    return likes, {name: int(word) for word, name in numbers.items()}

"""`loop init`: a first target of one's own, of a PyTorch function or module, a compiled kernel or a program.

Files that the user names are copied, with the files beside them that they import or include. A function is tried
in a process of its own: what it takes and gives is what the target says. Nothing else of theirs is run.
"""

import ast
import itertools
import json
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any

from loop.base.documents import did_you_mean, to_json, write_atomic
from loop.base.errors import ExitCode, UsageError
from loop.base.places import MANIFEST
from loop.base.processes import finish, python_path, run
from loop.base.screen import Screen
from loop.formats.python_text import read_text
from loop.formats.target import NAMES
from loop.model.dtypes import ITEM_SIZES
from loop.model.exported import MadeTarget
from loop.model.workloads import RESERVED
from loop.starting.manifest import OUTPUT, manifest
from loop.starting.modules import Named, named
from loop.starting.source import BUILDS, Start, identifier, of_source
from loop.workers.judge_process import UNTIMED

Likes = dict[str, list[dict[str, Any]]]
"""Path of a tensor to its shapes: `dims`, `dtype` and `high`, each as it was given."""
LIKE = re.compile(r"(?P<dims>[^:<]*)(:(?P<dtype>\w+))?(<(?P<high>\w+))?")
SIZED = re.compile(r"[A-Za-z]\w{0,63}|[1-9][0-9]{0,9}")
PATH = re.compile(rf"{NAMES.pattern}(\.{NAMES.pattern})*")
OWN = ("seed", "device", "drawn")
"""Names of a generator's own parameters: no size is called so."""
LETTERS = ("N", "M", "K", "L", "P", "Q", "R", "S")
LIMIT_S = 180.0
FREE = 32
"""A size that the output alone has, and that no number gives."""
FILES = ("reference", "mine", "inputs")


@dataclass(frozen=True)
class InitRequest:
    """What the user asked for."""

    folder: Path
    source: str | None = None
    """`module:function`, or a file of C, C++ or CUDA."""
    command: str | None = None
    like: Sequence[str] = ()
    """A tensor's shape each, as in `x=N,M`, `x=64,1000` or `places=N:int64<V`."""
    values: Sequence[str] = ()
    """A value each of what is no tensor, as in `heads=4` or `config.eps=1e-5`."""
    reference: str | None = None
    """`module:function` that is right, for a kernel or a program."""
    json: bool = False


def init(request: InitRequest, screen: Screen) -> int:
    """Write a target that verifies and measures at once. Raises UsageError with what it lacks."""
    if (request.source is None) == (request.command is None):
        raise UsageError(
            "give either --from or --command",
            hint=f"loop init {request.folder} --from module:function --like x=N,M",
        )
    if request.folder.exists() and (not request.folder.is_dir() or any(request.folder.iterdir())):
        message = f"{request.folder}: is there, and not an empty folder"
        raise UsageError(message, hint=_again(request, request.folder / "target"))
    likes, fixed = _likes(request.like)
    start = _started(request)
    source = request.reference if start else request.source
    right = named(source) if source else None
    copied = {**(start.copied if start else {}), **(right.files if right else {})}
    names = {stem: f"{stem}_of_target" if f"{stem}.py" in copied else stem for stem in FILES}
    facts = _tried(request, right, start, likes, fixed, names)
    variant = start.bound(facts) if start else _python(facts["function"], names["mine"])
    texts = {name: read_text(path) for name, path in copied.items()}
    texts |= {**{f"{name}.py": text for name, text in facts["files"].items()}, **variant.texts}
    texts[MANIFEST] = manifest(request.folder, facts, variant, names)
    _write(request.folder, texts)
    _tell(request, sorted(texts), [*facts["notes"], *variant.notes], right, screen)
    return ExitCode.OK


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / name, text)


def _tell(
    request: InitRequest, files: list[str], notes: Sequence[str], right: Named | None, screen: Screen
) -> None:
    folder = shlex.quote(str(request.folder))
    after = [f"loop trust {folder}", f"loop kernels verify --target {folder}"]
    after.append(f"loop run session quick --target {folder}")
    if right is None:
        after.insert(0, f"$EDITOR {folder}/reference.py")
    if request.json:
        target = MadeTarget(
            target=str(request.folder.absolute()), files=tuple(files), notes=tuple(notes), next=tuple(after)
        )
        screen.data(to_json(target))
        return
    screen.say(f"made {request.folder}: {', '.join(files)}")
    screen.say("\n".join([*(f"guessed: {note}" for note in notes), *(f"next: {line}" for line in after)]))


def _again(request: InitRequest, folder: Path, *more: str) -> str:
    """The command with something changed, to be printed."""
    words = ["--from", request.source] if request.source else ["--command", request.command or "CMD"]
    words += ["--reference", request.reference] if request.reference else []
    words += [word for text in request.like for word in ("--like", text)]
    words += [word for text in request.values for word in ("--set", text)]
    return shlex.join(["loop", "init", str(folder), *words, *more])


def _started(request: InitRequest) -> Start | None:
    """What the variant is, where that is no function in Python."""
    if request.command is not None:
        return _of_command(request.command)
    assert request.source is not None
    file, colon, function = request.source.rpartition(":")
    path = Path(file if colon else request.source)
    return of_source(path, function if colon else "", _given(request.values)) if path.suffix in BUILDS else None


def _python(function: str, module: str) -> Start:
    return Start(function, f"mine: {{kind: python, device: any, module: {module}, function: {function}}}")


def _of_command(command: str) -> Start:
    """A program. Words that are files here become whole paths, because it runs in the target's folder."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command: {command!r} cannot be read: {error}", hint="close its quotes") from error
    if not words:
        raise UsageError("--command: expected a program, got nothing", hint="--command './program {x} {output}'")
    whole = [str(Path(word).absolute()) if "{" not in word and Path(word).is_file() else word for word in words]
    comment = "  # It may also read the environment: LOOP_PATH_x, LOOP_PATH_output, LOOP_CALL and others."
    text = f"{comment.strip()}\n  mine: {{kind: command, device: cpu, run: {json.dumps(whole)}}}"
    return Start("computed", text, scalars=tuple(re.findall(r"\{(\w+)\}", command)))


def _tried(
    request: InitRequest,
    right: Named | None,
    start: Start | None,
    likes: Likes,
    fixed: Mapping[str, int],
    names: Mapping[str, str],
) -> dict[str, Any]:
    """What the function takes and gives, and the files in Python. Raises UsageError with what it lacks."""
    inputs = {name: shapes for name, shapes in likes.items() if name != OUTPUT}
    if not inputs and right is None:
        raise UsageError("no input has a shape", hint=_again(request, request.folder, "--like", "x=N,M"))
    subject = {"folder": str(Path.cwd()), "module": "", "name": ""}
    if right is not None:
        subject = {"folder": str(right.folder), "module": right.module, "name": right.name}
    name = subject["name"].rpartition(".")[2]
    variant = {
        "function": name if name.islower() and name != "forward" else identifier(subject["name"]),
        "likes": inputs,
        "vary": True,
        "attributes": None,
        "outputs": [],
    }
    if start is not None:
        own = {"likes": start.typed(inputs), "attributes": start.scalars, "outputs": start.outputs}
        variant = {"function": start.function, "vary": False, **own}
    terms = {**subject, **variant, "given": _given(request.values), "fixed": fixed, **names}
    facts = _in_a_process({**terms, "compiled": start is not None})
    if "lacks" in facts:
        raise _lacking(request, facts)
    if OUTPUT in likes and not facts["outputs"]:
        dims = likes[OUTPUT][0]["dims"]
        facts["outputs"] = [(OUTPUT, " ".join(dims), likes[OUTPUT][0]["dtype"])]
        for entry in itertools.chain.from_iterable(facts["workloads"].values()):
            entry |= {dim: fixed.get(dim, FREE) for dim in dims if dim not in entry}
    return {**facts, "function": variant["function"]}


def _lacking(request: InitRequest, facts: Mapping[str, Any]) -> UsageError:
    """What a target cannot be made without, and the command that gives it."""
    words = [word for text in facts["like"] for word in text.split()]
    more = _again(request, request.folder, *words) if words else ""
    return UsageError(facts["lacks"], hint=f"{more}{facts['hint']}" or None)


def _in_a_process(terms: Mapping[str, Any]) -> dict[str, Any]:
    """What the program that tries the function says."""
    scratch = Path(tempfile.mkdtemp(prefix="loop-init-"))
    try:
        terms_file, result_file = scratch / "terms.json", scratch / "result.json"
        terms_file.write_text(json.dumps(terms))
        command = (sys.executable, "-m", "loop.starting.program", str(terms_file), str(result_file))
        path = {"PYTHONPATH": python_path(), "PYTHONDONTWRITEBYTECODE": "1", **UNTIMED}
        done = finish(run(command, limit_s=LIMIT_S, cwd=Path(str(terms["folder"])), env=path, note="trying it"))
        if result_file.is_file():
            return json.loads(result_file.read_text())  # type: ignore[no-any-return]
        last = (done.errors.strip().splitlines() or [done.how])[-1]
        return {
            "lacks": f"{terms['module']}:{terms['name']} ended the process that tried it: {last}",
            "hint": "",
            "like": [],
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _given(texts: Sequence[str]) -> dict[str, Any]:
    """Path to the value that `--set` gives it: a literal of Python, else the word itself."""
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


def _likes(texts: Sequence[str]) -> tuple[Likes, dict[str, int]]:
    """Path to its shapes, with names for sizes; and what is given by number: equal numbers are one size."""
    read = [_like(text) for text in texts]
    words = [word for _, like in read for word in like["dims"]]
    letters = (*LETTERS, *(f"D{n}" for n in range(len(words))))
    free = (letter for letter in letters if letter not in words)
    numbers = {word: next(free) for word in dict.fromkeys(filter(str.isdigit, words))}
    likes: Likes = {}
    for name, like in read:
        dims = [numbers.get(word, word) for word in like["dims"]]
        likes.setdefault(name, []).append({**like, "dims": dims})
    if same := {*words} & {name.replace(".", "_") for name in likes}:
        raise UsageError(f"--like: `{min(same)}` is a tensor and a size", hint="call the size otherwise")
    return likes, {name: int(word) for word, name in numbers.items()}


def _like(text: str) -> tuple[str, dict[str, Any]]:
    """A tensor's name and its sizes and type, of `x=N,M` or `places=N:int64<V`."""
    name, _, shape = (part.strip() for part in text.partition("="))
    read = LIKE.fullmatch(shape.replace(" ", ""))
    words = read["dims"].split(",") if read else [""]
    allowed = (SIZED.fullmatch(word) and word not in (*RESERVED, *OWN) and not iskeyword(word) for word in words)
    if not read or not PATH.fullmatch(name) or iskeyword(name) or not all(allowed):
        raise UsageError(
            f"--like {text!r}: expected a tensor with its sizes, by name or by number",
            hint="such as --like x=N,M or --like x=64,1000; a type follows: --like places=N:int64",
        )
    if read["dtype"] and read["dtype"] not in ITEM_SIZES:
        known = did_you_mean(read["dtype"], list(ITEM_SIZES))
        raise UsageError(f"--like {text!r}: no type {read['dtype']!r}: {', '.join(ITEM_SIZES)}", hint=known)
    return name, {"dims": words, "dtype": read["dtype"] or "", "high": read["high"] or ""}

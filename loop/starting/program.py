"""Tries the function that `loop init` was given: a program, for it imports the user's module.

`python -m loop.starting.program TERMS RESULT`: both are JSON files. It finds what the function takes, calls
it with sizes and values of several kinds, and writes the files and facts of a target that can be judged at once,
or what it lacks.
"""

import ast
import inspect
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from loop.base.documents import did_you_mean
from loop.calls import torch_side
from loop.starting.facts import TargetFacts, facts_of
from loop.starting.sizes import DIFFERENT, Sizes, edges, uneven
from loop.starting.slots import Argument, Missing, Option, Slots, tensor_options
from loop.starting.texts import Hypothesis, Subject, stub
from loop.starting.trial import NOT_SAME, Trial
from loop.workers.wire import described

LIMIT_S, MOST_TRIES = 40.0, 600
"""What is tried before `loop init` gives up, in all and with each set of sizes."""
MOST = 6
"""Edges of a target whose reference is still to be written."""
NO_GRAD = "does not require grad"


class Lacking(Exception):
    """What a target cannot be made without: a message and what to do next."""

    def __init__(self, message: str, hint: str = "", like: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint, self.like = hint, like


def subject_of(terms: dict[str, Any], slots: Slots) -> Subject:
    """What the user named, and the arguments of its calls. Raises Lacking for what is not there."""
    name, function = terms["name"], terms["function"]
    module = torch_side.import_module(terms["module"])
    owner, member = _looked_up(module, terms)
    last = name.rpartition(".")[2]
    is_method = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, last))
    if not inspect.isclass(member) and not is_method:
        call = _arguments(slots, member, module, last)
        return Subject(terms["module"], name, function, call=call, imports=tuple(slots.imports))
    kind, method = (owner, last) if is_method else (member, "")
    is_module = issubclass(kind, torch.nn.Module)
    own = method or ("forward" if is_module else "__call__")
    call = slots.arguments(getattr(kind, own), bound=True)
    slots.constructing = True
    return Subject(
        terms["module"],
        name.rpartition(".")[0] if is_method else name,
        function,
        kind="module" if is_module else "object",
        method="" if is_module and own == "forward" else own,
        constructor=slots.arguments(kind, kind),
        call=call,
        imports=tuple(slots.imports),
    )


def _looked_up(module: Any, terms: dict[str, Any]) -> tuple[Any, Any]:
    """The module or class that has a name, and what the name stands for. Raises Lacking."""
    owner: Any = module
    member: Any = module
    for word in terms["name"].split("."):
        owner, member = member, getattr(member, word, None)
        if member is None:
            known = [name for name, value in vars(owner).items() if callable(value) and not name.startswith("_")]
            raise Lacking(f"{terms['module']}: no `{word}` there", did_you_mean(word, known) or "")
    return owner, member


def _arguments(slots: Slots, function: Any, module: Any, name: str) -> list[Argument]:
    """Those of a function; where it does not say them, inputs in the order of its text, else as given."""
    try:
        arguments = slots.arguments(function)
    except (ValueError, TypeError):  # Written in C.
        arguments = []
    if slots.used or slots.missing or not slots.likes or slots.notes:
        return arguments
    in_text = [parameter for parameter in _in_text(module, name) if parameter in slots.likes]
    names = in_text if len(in_text) == len(slots.likes) else list(slots.likes)
    none, how = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_ONLY
    return [Argument(parameter, slots.text(parameter, None, none, {}) or "", how) for parameter in names]


def _in_text(module: Any, name: str) -> list[str]:
    """Parameters of a function as its text has them, whatever a decorator made of it."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return []
    every = [node.args for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    return [arg.arg for args in every[:1] for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


def check_names(terms: dict[str, Any], slots: Slots) -> None:
    """Raise Lacking for what has no shape or value, and for what there is no parameter of."""
    what = f"{terms['module']}:{terms['name']}"
    others = {*slots.used, *terms["outputs"], *(terms["attributes"] or ())}
    for option, names in (("--like", slots.likes), ("--set", slots.values)):
        if unknown := [name for name in names if name not in others]:
            message = f"{what} has no parameter `{unknown[0]}`: {', '.join(slots.names)}"
            raise Lacking(f"{option} {unknown[0]}: {message}", did_you_mean(unknown[0], slots.names) or "")
    if slots.missing:
        raise _lacking(what, slots.missing)


def _lacking(what: str, missing: Sequence[Missing]) -> Lacking:
    """What is said of parameters of which nothing is known."""
    tensors = [slot.path for slot in missing if slot.kind in ("", "tensor", "tensors")]
    values = " ".join(f"--set {slot.path}=VALUE" for slot in missing if slot.kind not in ("tensor", "tensors"))
    paths = ", ".join(f"`{slot.path}`" for slot in missing)
    hint = f"; or, where it is no tensor, {values}" if tensors and values else values
    likes = [f"--like {path}=N,M" for path in tensors]
    return Lacking(f"{paths} of {what} has no shape{' and no value' if values else ''}", hint, likes)


def by_rank(options: Sequence[Sequence[Option]]) -> Iterator[tuple[Option, ...]]:
    """All combinations, the likeliest choices first."""
    most = sum(len(choices) - 1 for choices in options)
    for total in range(most + 1):
        yield from _of_rank(options, total)


def _of_rank(options: Sequence[Sequence[Option]], total: int) -> Iterator[tuple[Option, ...]]:
    if not options:
        if total == 0:
            yield ()
        return
    for n, first in enumerate(options[0][: total + 1]):
        for rest in _of_rank(options[1:], total - n):
            yield (first, *rest)


def search(subject: Subject, slots: Slots, sizes: Sizes, began: float) -> tuple[Trial, dict[str, int]]:
    """What runs, and with which sizes: with finite outputs where anything gives them. Raises Lacking.

    The likeliest choice counts more than odd sizes. Equal sizes come last: there anything fits.
    """
    every = list(sizes.tried())
    different = [candidate for n, candidate in enumerate(every[:DIFFERENT]) if candidate not in every[:n]]
    equal = [candidate for candidate in every[DIFFERENT:] if candidate not in different]
    errors: list[tuple[bool, Exception]] = []
    second_best = None
    for several in (different, equal):
        for options in itertools.islice(by_rank(list(slots.options.values())), MOST_TRIES):
            hypothesis = Hypothesis(subject, dict(zip(slots.options, options, strict=True)))
            for tried in several if time.monotonic() - began < LIMIT_S else ():
                try:
                    trial = Trial(hypothesis)
                    outcome = trial.run(tried)
                    small = not trial.has_masks or trial.finite_at_one(tried)
                except Exception as error:
                    errors.append((several is different, error))
                    continue
                if outcome.finite and small:
                    return _with_largest_indices(trial, slots, tried), tried
                second_best = second_best or (trial, tried)
        if second_best:
            return second_best
    raise _why(subject, slots, min(errors, key=lambda failure: failure[0])[1])


def _with_largest_indices(trial: Trial, slots: Slots, tried: dict[str, int]) -> Trial:
    """The same with each index below the largest size that it may reach."""
    for path, chosen in trial.hypothesis.options.items():
        if not any(tensor.values in ("index", "distinct", "sorted") for tensor in chosen.inputs):
            continue
        values = chosen.inputs[0].values
        same = [option for option in slots.options[path] if option.inputs and option.inputs[0].values == values]
        for option in sorted(same, key=lambda option: -tried.get(option.inputs[0].high, 0)):
            other = Trial(replace(trial.hypothesis, options={**trial.hypothesis.options, path: option}))
            try:
                if other.run(tried).finite:
                    trial = other
                    break
            except Exception:
                continue
    return trial


def _why(subject: Subject, slots: Slots, error: Exception) -> Lacking:
    """What a function said that ran with nothing."""
    if isinstance(error, NOT_SAME):
        return Lacking(str(error), "name a function that gives tensors")
    what, text = f"{subject.module}:{subject.name}", described(error)
    if NO_GRAD in text:
        hint = (
            "references run under torch.no_grad(): compute inside `with torch.enable_grad():`, and detach outputs"
        )
        return Lacking(f"{what} does not run: {text}", hint)
    guessed = [path for path, options in slots.options.items() if len(options) > 1 and not options[0].inputs]
    sets = " ".join(f"--set {path}=VALUE" for path in guessed)
    hint = f"give values that fit: {sets}; or " if guessed else ""
    typed = (
        "give sizes that fit, by number where they depend on each other: --like x=8,64; a type: --like x=N,M:int64"
    )
    return Lacking(f"{what} does not run with any sizes and values that `loop init` tried: {text}", hint + typed)


def started(terms: dict[str, Any]) -> dict[str, Any]:
    """The files and facts of a target. Raises Lacking."""
    if not terms["module"]:
        return _unwritten(terms)
    slots = Slots(terms["likes"], terms["given"], terms["attributes"])
    subject = subject_of(terms, slots)
    check_names(terms, slots)
    sizes = _sizes(terms, [name for name in slots.likes if name in slots.used])
    if not sizes.shapes:
        raise Lacking(f"no input of {terms['module']}:{terms['name']} has a shape", "", ["--like x=N,M"])
    trial, base = search(subject, slots, sizes, time.monotonic())
    trial = trial.settled(base)
    facts = facts_of(trial, base, sizes, slots, vary=terms["vary"])
    return _written(terms, trial.hypothesis, facts)


def _sizes(terms: dict[str, Any], names: Sequence[str]) -> Sizes:
    """The dimensions of these inputs."""
    return Sizes([shape["dims"] for name in names for shape in terms["likes"][name]], terms["fixed"])


def _written(terms: dict[str, Any], hypothesis: Hypothesis, facts: TargetFacts) -> dict[str, Any]:
    titles = ("What is right", "Your variant, to be made faster. It begins as the reference")
    files = {terms["reference"]: hypothesis.wrapper(titles[0])}
    if not terms["compiled"]:
        files[terms["mine"]] = hypothesis.wrapper(titles[1])
    if facts.generated:
        files[terms["inputs"]] = hypothesis.generator(terms["reference"])
    return {"files": files, "tried": bool(terms["module"]), **facts.as_json()}


def _unwritten(terms: dict[str, Any]) -> dict[str, Any]:
    """A target of a kernel or a program whose reference is still to be written."""
    likes = {name: shapes for name, shapes in terms["likes"].items() if name not in terms["outputs"]}
    sizes = _sizes(terms, list(likes))
    flat = {path.replace(".", "_"): shapes[0] for path, shapes in likes.items()}
    options = {name: tensor_options(name, like, "", ())[0] for name, like in flat.items()}
    hypothesis = Hypothesis(Subject("", "", terms["function"]), options)
    main, names = sizes.timed(1), sizes.varied(vary=False)
    quick = [main, uneven(main, names)] if names else [main]
    facts = TargetFacts(hypothesis, {"quick": quick, "edges": list(edges(main, names))[:MOST]})
    result = _written({**terms, "compiled": True}, hypothesis, facts)
    result["files"][terms["reference"]] = stub(terms["function"], list(options))
    return result


def main(terms: dict[str, Any]) -> dict[str, Any]:
    """Facts, or what is lacking."""
    sys.path.insert(0, terms["folder"])
    torch_side.use_threads(1)
    try:
        return started(terms)
    except Lacking as lacking:
        return {"lacks": str(lacking), "hint": lacking.hint, "like": list(lacking.like)}
    except NOT_SAME as error:
        return {
            "lacks": str(error),
            "hint": "seed what it draws by an argument, or name a function that draws nothing",
            "like": [],
        }
    except Exception as error:
        return {"lacks": f"{terms['module']}:{terms['name']}: {described(error)}", "hint": "", "like": []}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))

"""Tries the function that `loop init` was given: a program, for it imports the user's module.

`python -m loop.workers.starting_program TERMS RESULT`: both are JSON files. It finds what the function takes, calls
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
from loop.workers.serving import described
from loop.workers.starting_facts import Facts, facts_of
from loop.workers.starting_sizes import DIFFERENT, Sizes, edges, uneven
from loop.workers.starting_slots import Argument, Option, Slots, parameters, tensor_options
from loop.workers.starting_texts import Hypothesis, Subject, stub
from loop.workers.starting_trial import NOT_SAME, Trial

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
    """What the user named, and the arguments of its calls. Raises Lacking for what nothing is known of."""
    name, words = terms["name"], terms["name"].split(".")
    module = torch_side.import_module(terms["module"])
    owner: Any = module
    found: Any = module
    for word in words:
        owner, found = found, getattr(found, word, None)
        if found is None:
            known = [one for one, value in vars(owner).items() if callable(value) and not one.startswith("_")]
            raise Lacking(f"{terms['module']}: no `{name}` there", did_you_mean(word, known) or "")
    function = terms["function"]
    subject = Subject(terms["module"], name, function)
    plain = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, words[-1]))
    kind = found if inspect.isclass(found) else owner if plain else None
    if kind is None:
        return _with(subject, slots, call=_arguments(slots, found, module, words[-1]))
    method = words[-1] if plain else ""
    is_module = issubclass(kind, torch.nn.Module)
    if is_module and method == "forward":
        method = ""
    called = getattr(kind, method or ("forward" if is_module else "__call__"))
    call = slots.arguments(called, bound=True)
    slots.constructing = True
    constructor = slots.arguments(kind, kind)
    made = "module" if is_module else "object"
    top = Subject(terms["module"], name.rpartition(".")[0] if plain else name, function)
    if "." in top.name:
        raise Lacking(f"{terms['module']}:{name} is in a class of a class", "name it at the module's top level")
    return _with(
        top,
        slots,
        kind=made,
        method=method or ("" if is_module else "__call__"),
        call=call,
        constructor=constructor,
    )


def _with(subject: Subject, slots: Slots, **more: Any) -> Subject:
    return Subject(subject.module, subject.name, subject.function, imports=tuple(slots.imports), **more)


def _arguments(slots: Slots, function: Any, module: Any, name: str) -> list[Argument]:
    """Those of a function; of one that does not say what it takes, the inputs in the order of its text, else as given."""
    try:
        found = slots.arguments(function)
    except (ValueError, TypeError):
        found = []
    if (
        slots.used
        or not slots.likes
        or any(
            one.kind is not inspect.Parameter.VAR_POSITIONAL and one.kind is not inspect.Parameter.VAR_KEYWORD
            for one in _known(function)
        )
    ):
        return found
    order = [one for one in _in_text(module, name) if one in slots.likes]
    names = order if len(order) == len(slots.likes) else list(slots.likes)
    how = inspect.Parameter.POSITIONAL_ONLY
    return [Argument(one, slots.text(one, None, inspect.Parameter.empty, {}) or "", how) for one in names]


def _known(function: Any) -> list[inspect.Parameter]:
    try:
        return list(parameters(function))
    except (ValueError, TypeError):
        return []


def _in_text(module: Any, name: str) -> list[str]:
    """Parameters of a function as its text has them, whatever a decorator made of it."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return []
    found = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name]
    return [
        one.arg for node in found[:1] for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    ]


def check_names(terms: dict[str, Any], slots: Slots, subject: Subject) -> None:
    """Raise Lacking for what has no shape or value, and for what there is no parameter of."""
    what = f"{terms['module']}:{terms['name']}"
    known = [one.name for one in (*subject.constructor, *subject.call)]
    known += [note.partition(" ")[0] for note in slots.notes]
    for option, names in (("--like", slots.likes), ("--set", slots.given)):
        for name in names:
            if name not in slots.used and name not in (*terms["outputs"], *(terms["attributes"] or ())):
                hint = did_you_mean(name, known) or ""
                raise Lacking(
                    f"{option} {name}: {what} has no parameter `{name}`: {', '.join(dict.fromkeys(known))}", hint
                )
    if slots.missing:
        names = ", ".join(f"`{one.path}`" for one in slots.missing)
        likes = [f"--like {one.path}=N,M" for one in slots.missing if one.kind in ("", "tensor", "tensors")]
        sets = [f"--set {one.path}=VALUE" for one in slots.missing if one.kind not in ("tensor", "tensors")]
        lacks = "no shape and no value" if sets else "no shape"
        both = f"; or, where it is no tensor, {' '.join(sets)}" if likes and sets else " ".join(sets)
        raise Lacking(f"{names} of {what} has {lacks}", both, likes)


def by_rank(options: Sequence[Sequence[Option]]) -> Iterator[tuple[Option, ...]]:
    """All combinations, the likeliest choices first."""
    most = sum(len(one) - 1 for one in options)
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
    different = [one for n, one in enumerate(every[:DIFFERENT]) if one not in every[:n]]
    equal = [one for one in every[DIFFERENT:] if one not in different]
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
    raise _why(subject, slots, min(errors, key=lambda one: one[0])[1])


def _with_largest_indices(trial: Trial, slots: Slots, tried: dict[str, int]) -> Trial:
    """The same with each index below the largest size that it may reach."""
    for path, chosen in trial.hypothesis.options.items():
        if not any(one.values in ("index", "sorted") for one in chosen.inputs):
            continue
        same = [
            one for one in slots.options[path] if one.inputs and one.inputs[0].values == chosen.inputs[0].values
        ]
        for option in sorted(same, key=lambda one: -tried.get(one.inputs[0].high, 0)):
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
    what, said = f"{subject.module}:{subject.name}", described(error)
    if NO_GRAD in said:
        hint = (
            "references run under torch.no_grad(): compute inside `with torch.enable_grad():`, and detach outputs"
        )
        return Lacking(f"{what} does not run: {said}", hint)
    guessed = [path for path, options in slots.options.items() if len(options) > 1 and not options[0].inputs]
    sets = " ".join(f"--set {one}=VALUE" for one in guessed)
    hint = f"give values that fit: {sets}; or " if guessed else ""
    typed = (
        "give sizes that fit, by number where they depend on each other: --like x=8,64; a type: --like x=N,M:int64"
    )
    return Lacking(f"{what} does not run with any sizes and values that `loop init` tried: {said}", hint + typed)


def started(terms: dict[str, Any]) -> dict[str, Any]:
    """The files and facts of a target. Raises Lacking."""
    if not terms["module"]:
        return _unwritten(terms)
    slots = Slots(terms["likes"], terms["given"], terms["attributes"])
    subject = subject_of(terms, slots)
    check_names(terms, slots, subject)
    sizes = _sizes(terms, [name for name in slots.likes if name in slots.used])
    if not sizes.shapes:
        raise Lacking(f"no input of {terms['module']}:{terms['name']} has a shape", "", ["--like x=N,M"])
    trial, base = search(subject, slots, sizes, time.monotonic())
    trial = trial.settled(base)
    facts = facts_of(trial, base, sizes, slots, vary=terms["vary"])
    return _written(terms, trial.hypothesis, facts)


def _sizes(terms: dict[str, Any], names: Sequence[str]) -> Sizes:
    """The dimensions of these inputs."""
    return Sizes([one["dims"] for name in names for one in terms["likes"][name]], terms["fixed"])


def _written(terms: dict[str, Any], hypothesis: Hypothesis, facts: Facts) -> dict[str, Any]:
    titles = ("What is right", "Your variant, to be made faster. It begins as the reference")
    files = {terms["reference"]: hypothesis.wrapper(titles[0])}
    if not terms["compiled"]:
        files[terms["mine"]] = hypothesis.wrapper(titles[1])
    if facts.generated:
        files[terms["inputs"]] = hypothesis.generator(terms["reference"])
    return {"files": files, "tried": bool(terms["module"]), **facts.told()}


def _unwritten(terms: dict[str, Any]) -> dict[str, Any]:
    """A target of a kernel or a program whose reference is still to be written."""
    likes = {name: shapes for name, shapes in terms["likes"].items() if name not in terms["outputs"]}
    sizes = _sizes(terms, list(likes))
    flat = {path.replace(".", "_"): shapes[0] for path, shapes in likes.items()}
    options = {name: tensor_options(name, like, "", ())[0] for name, like in flat.items()}
    hypothesis = Hypothesis(Subject("", "", terms["function"]), options)
    main, names = sizes.timed(1), sizes.varied(vary=False)
    quick = [main, uneven(main, names)] if names else [main]
    facts = Facts(hypothesis, {"quick": quick, "edges": list(edges(main, names))[:MOST]})
    found = _written({**terms, "compiled": True}, hypothesis, facts)
    found["files"][terms["reference"]] = stub(terms["function"], list(options))
    return found


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

"""The program that tries a function for `loop init`, in a process because it imports the user's module.

`python -m loop.starting.program TERMS RESULT`: both are JSON files. The program finds arguments that the
function accepts, and calls it with several sizes and values. It writes the files and facts of a target, or
what the user has to add.
"""

import contextlib
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
from loop.starting.facts import Lacking, Trial, facts_of
from loop.starting.manifest import DIFFERENT, Sizes
from loop.starting.slots import Option, Slots
from loop.starting.texts import Hypothesis, Subject
from loop.workers.messages import describe_error

LIMIT_S, MOST_TRIES = 40.0, 600
"""Limits of the search: seconds in all, and combinations of options for each group of sizes."""
NO_GRAD = "does not require grad"


def subject_of(terms: dict[str, Any], slots: Slots) -> Subject:
    """Find the user's function and its arguments. Raises Lacking if anything is missing."""
    name, function = terms["name"], terms["function"]
    module: Any = torch_side.import_module(terms["module"])
    owner = member = module
    for word in name.split("."):
        owner, member = member, getattr(member, word, None)
        if member is None:
            known = [name for name, value in vars(owner).items() if callable(value) and not name.startswith("_")]
            raise Lacking(f"{terms['module']}: no `{word}` there", did_you_mean(word, known) or "")
    is_method = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, word))
    kind = owner if is_method else member
    is_module = inspect.isclass(kind) and issubclass(kind, torch.nn.Module)
    fields: dict[str, Any] = {}
    if is_module and is_method and word != "forward":
        raise Lacking(f"{terms['module']}:{name} is a method of a module", f"name the module: {owner.__name__}")
    if inspect.isclass(kind):
        method = word if is_method else "forward" if is_module else "__call__"
        call = slots.arguments(getattr(kind, method), bound=True)
        slots.constructing = True
        fields = {"kind": "module" if is_module else "object", "constructor": slots.arguments(kind, kind)}
        fields["method"] = "" if is_module else method
        name = name.rpartition(".")[0] if is_method else name
    else:
        try:
            call = slots.arguments(member)
        except (ValueError, TypeError):  # A C function without a signature.
            call = []
        if not (slots.used or slots.missing or slots.notes):  # No signature: use the order of `--like`.
            call = [("", slots.text(path, None, inspect.Parameter.empty, {}) or "") for path in slots.likes]
    _check_names(f"{terms['module']}:{terms['name']}", terms["attributes"] or (), slots)
    return Subject(terms["module"], name, function, call, imports=tuple(slots.imports), **fields)


def _check_names(what: str, attributes: Sequence[str], slots: Slots) -> None:
    """Raise Lacking for a parameter without shape or value, and for an option without parameter."""
    known = {*slots.used, *attributes}
    for option, names in (("--like", slots.likes), ("--set", slots.values)):
        if unknown := [name for name in names if name not in known]:
            message = f"{what} has no parameter `{unknown[0]}`: {', '.join(slots.names)}"
            raise Lacking(f"{option} {unknown[0]}: {message}", did_you_mean(unknown[0], slots.names) or "")
    if slots.missing:
        tensors = [path for path, kind in slots.missing.items() if kind in ("", "tensor", "tensors")]
        others = [path for path, kind in slots.missing.items() if kind not in ("tensor", "tensors")]
        values = " ".join(f"--set {path}=VALUE" for path in others)
        hint = f"; or, where it is no tensor, {values}" if tensors and values else values
        message = f"{', '.join(f'`{path}`' for path in slots.missing)} of {what} has no shape"
        message += " and no value" if values else ""
        raise Lacking(message, hint, [f"--like {path}=N,M" for path in tensors])


def by_rank(options: Sequence[Sequence[Option]], total: int) -> Iterator[tuple[Option, ...]]:
    """Combinations of one option per list whose indices sum to `total`; index 0 is likeliest."""
    if not options:
        yield from [()] if total == 0 else []
        return
    for n, first in enumerate(options[0][: total + 1]):
        for rest in by_rank(options[1:], total - n):
            yield (first, *rest)


def search_call(subject: Subject, slots: Slots, sizes: Sizes) -> tuple[Trial, dict[str, int]]:
    """Search a call that runs, and its sizes, if possible with finite outputs. Raises Lacking.

    Likely options come first, each on all different sizes. Equal sizes come last: wrong calls run, too.
    """
    began, every, choices = time.monotonic(), list(sizes.tried()), list(slots.options.values())
    different = [candidate for n, candidate in enumerate(every[:DIFFERENT]) if candidate not in every[:n]]
    equal = [candidate for candidate in every[DIFFERENT:] if candidate not in different]
    errors: list[tuple[bool, Exception]] = []
    second_best = None
    for several in (different, equal):
        ranks = range(1 + sum(len(options) - 1 for options in choices))
        combinations = itertools.chain.from_iterable(by_rank(choices, total) for total in ranks)
        for options in itertools.islice(combinations, MOST_TRIES):
            hypothesis = Hypothesis(subject, dict(zip(slots.options, options, strict=True)))
            for candidate in several if time.monotonic() - began < LIMIT_S else ():
                try:
                    trial = Trial(hypothesis)
                    is_good = trial.run(candidate).finite
                    if is_good and any(tensor.values.startswith("mask") for tensor in hypothesis.inputs):
                        with contextlib.suppress(Exception):  # A masked row of one element must stay finite.
                            is_good = trial.run(dict.fromkeys(candidate, 1)).finite
                except Exception as error:
                    errors.append((several is different, error))
                    continue
                if is_good:
                    return with_largest_indices(trial, slots, candidate), candidate
                second_best = second_best or (trial, candidate)
        if second_best:
            return second_best
    cause = min(errors, key=lambda failure: failure[0])[1]
    if isinstance(cause, Lacking):
        raise cause
    text = describe_error(cause)
    if NO_GRAD in text:
        hint = "references run under torch.no_grad(): compute under `torch.enable_grad()`, and detach outputs"
        raise Lacking(f"{subject.full_name} does not run: {text}", hint)
    guessed = [path for path, options in slots.options.items() if len(options) > 1 and not options[0].inputs]
    hint = f"give values that fit: {' '.join(f'--set {path}=VALUE' for path in guessed)}; or " if guessed else ""
    typed = "give sizes that fit, by number where one depends on another: --like x=8,64; a type: --like x=N:int64"
    message = f"{subject.full_name} does not run with any sizes and values that `loop init` tried: {text}"
    raise Lacking(message, hint + typed)


def with_largest_indices(trial: Trial, slots: Slots, sizes: dict[str, int]) -> Trial:
    """The trial with each index tensor bounded by the largest size with which the call runs."""
    for path, chosen in trial.hypothesis.options.items():
        if not any(tensor.values in ("index", "distinct") for tensor in chosen.inputs):
            continue
        values = chosen.inputs[0].values
        same = [option for option in slots.options[path] if option.inputs and option.inputs[0].values == values]
        for option in sorted(same, key=lambda option: -sizes.get(option.inputs[0].high, 0)):
            other = Trial(replace(trial.hypothesis, options={**trial.hypothesis.options, path: option}))
            with contextlib.suppress(Exception):
                if other.run(sizes).finite:
                    trial = other
                    break
    return trial


def started_target(terms: dict[str, Any]) -> dict[str, Any]:
    """Module name to text under `files`, and the facts of a target. Raises Lacking."""
    slots = Slots(terms["likes"], terms["given"], terms["attributes"])
    subject = subject_of(terms, slots)
    shapes = [shape["dims"] for name in slots.likes if name in slots.used for shape in terms["likes"][name]]
    if not shapes:
        raise Lacking(f"no input of {subject.full_name} has a shape", "", ["--like x=N,M"])
    sizes = Sizes(shapes, terms["fixed"])
    trial, base = search_call(subject, slots, sizes)
    trial = trial.settled(base)
    facts = facts_of(trial, base, sizes, slots, vary=not terms["compiled"])
    files = {terms["reference"]: trial.hypothesis.wrapper("What is right")}
    if not terms["compiled"]:
        title = "Your variant, to be made faster. It begins as the reference"
        files[terms["mine"]] = trial.hypothesis.wrapper(title)
    if facts["generated"]:
        files[terms["inputs"]] = trial.hypothesis.generator(terms["reference"])
    return {"files": files, **facts}


def main(terms: dict[str, Any]) -> dict[str, Any]:
    """The result as JSON: files and facts; of a failure what it `lacks`, a `hint`, and names `like` it."""
    sys.path.insert(0, terms["folder"])
    torch_side.use_threads(1)
    try:
        return started_target(terms)
    except Lacking as lacking:
        return {"lacks": str(lacking), "hint": lacking.hint, "like": list(lacking.like)}
    except Exception as error:
        return {"lacks": f"{terms['module']}:{terms['name']}: {describe_error(error)}", "hint": "", "like": []}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))

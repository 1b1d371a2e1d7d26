"""The program that tries a function for `loop init`, in a process because it imports the user's module.

`python -m loop.starting.program TERMS RESULT`: files with a `TrialTerms` and a `TrialResult` as JSON. The
program finds arguments that the function accepts, and calls it with several sizes and values.
"""

import contextlib
import inspect
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.calls import torch_side
from loop.calls.own_modules import describe_error
from loop.starting.choices import Choice, Choices
from loop.starting.facts import Trial, gather_facts
from loop.starting.manifest import DIFFERENT_SIZES, EQUAL_SIZES, Sizes
from loop.starting.model import TargetFacts, TrialResult, TrialTerms
from loop.starting.texts import Subject

LIMIT_S, MOST_TRIES = 40.0, 600
"""Limits of the search: seconds in all, and combinations of choices for each group of sizes."""


def find_subject(terms: TrialTerms, choices: Choices) -> Subject:
    """Find the user's function, and collect the choices of its arguments. Raises UsageError."""
    name = terms.name
    member: Any
    try:
        owner = member = torch_side.import_module(terms.module)
    except ModuleNotFoundError as error:
        if not f"{terms.module}.".startswith(f"{error.name}."):
            raise  # The user's module itself imports what is missing.
        hint = f"start the command in the folder of {terms.module.partition('.')[0]}.py, or pip install it"
        message = f"{terms.module}: no module `{error.name}` here or among the installed packages"
        raise UsageError(message, hint) from error
    for word in name.split("."):
        owner, member = member, getattr(member, word, None)
        if member is None:
            names = [key for key, value in vars(owner).items() if callable(value) and not key.startswith("_")]
            own_names = [name for name in names if getattr(vars(owner)[name], "__module__", "") == terms.module]
            hint = did_you_mean(word, names) or f"it has {', '.join(own_names[:8]) or 'none'}"
            raise UsageError(f"{terms.module}: no `{word}` there", hint)
    # `word`: the last part of the name; `member`: what it names, in `owner`.
    is_method = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, word))
    class_or_function = owner if is_method else member
    is_module = inspect.isclass(class_or_function) and issubclass(class_or_function, torch.nn.Module)
    class_fields: dict[str, Any] = {}  # Fields of `Subject` for a class: an instance is made and called.
    if is_module and is_method and word != "forward":
        message = f"{terms.module}:{name} is a method of a module"
        raise UsageError(message, f"name the module: {owner.__name__}")
    if inspect.isclass(class_or_function):
        method = word if is_method else "forward" if is_module else "__call__"
        call = choices.add_arguments(getattr(class_or_function, method), bound=True)
        choices.is_constructor = True
        class_fields["constructor"] = choices.add_arguments(class_or_function)
        class_fields["kind"] = "module" if is_module else "object"
        class_fields["method"] = "" if is_module else method
        name = name.rpartition(".")[0] if is_method else name
    else:
        try:
            call = choices.add_arguments(member)
        except (ValueError, TypeError):  # A C function without a signature.
            call = []
        if not (choices.used or choices.missing or choices.notes):  # No signature: use the order of `--like`.
            for path in choices.likes:
                call.append(("", choices.add(path, None, inspect.Parameter.empty, {}) or ""))
    _check_names(terms, choices)
    return Subject(terms.module, name, terms.function, call, imports=tuple(choices.imports), **class_fields)


def _check_names(terms: TrialTerms, choices: Choices) -> None:
    """Raise UsageError for a parameter without shape or value, and for an option without parameter."""
    function, names = f"{terms.module}:{terms.name}", {*choices.used, *(terms.attributes or ())}
    for option, paths in (("--like", choices.likes), ("--set", choices.values)):
        if unknown := [path for path in paths if path not in names]:
            message = f"{function} has no parameter `{unknown[0]}`: {', '.join(choices.names)}"
            raise UsageError(f"{option} {unknown[0]}: {message}", did_you_mean(unknown[0], choices.names))
    if choices.missing:  # A parameter of no known kind may be a tensor or a value.
        tensor_paths = [path for path, kind in choices.missing.items() if kind in ("", "tensor", "tensors")]
        value_paths = [path for path, kind in choices.missing.items() if kind not in ("tensor", "tensors")]
        values = " ".join(f"--set {path}=VALUE" for path in value_paths)
        message = f"{', '.join(f'`{path}`' for path in choices.missing)} of {function} has no shape"
        message += " and no value" if values else ""
        hint = " ".join([terms.command_line, *(f"--like {path}=N,M" for path in tensor_paths)])
        if values:
            hint = f"{hint}; or, where it is no tensor, {values}" if tensor_paths else values
        raise UsageError(message, hint)


def combinations_of_rank(choices: Sequence[Sequence[Choice]], rank: int) -> Iterator[tuple[Choice, ...]]:
    """Combinations of one choice per list whose indices sum to `rank`. The likeliest have rank 0."""
    if not choices:
        yield from [()] if rank == 0 else []
        return
    for index, first in enumerate(choices[0][: rank + 1]):
        for others in combinations_of_rank(choices[1:], rank - index):
            yield (first, *others)


def search_call(subject: Subject, choices: Choices, sizes: Sizes) -> tuple[Trial, dict[str, int]]:
    """Search a call that runs, and its sizes, if possible with finite outputs. Raises UsageError. Likely choices
    come first, each on all different sizes; equal sizes come last, because wrong calls run with them, too."""
    began, choice_lists = time.monotonic(), list(choices.by_path.values())
    different = sizes.candidates(DIFFERENT_SIZES)
    equal = [candidate for candidate in sizes.candidates(EQUAL_SIZES) if candidate not in different]
    ranks = range(1 + sum(len(items) - 1 for items in choice_lists))
    errors: list[tuple[bool, Exception]] = []  # (whether sizes were different, error)
    nonfinite_call = None
    for group in (different, equal):
        combinations = itertools.chain.from_iterable(combinations_of_rank(choice_lists, rank) for rank in ranks)
        for combination in itertools.islice(combinations, MOST_TRIES):
            choice_by_path = dict(zip(choices.by_path, combination, strict=True))
            for candidate in group if time.monotonic() - began < LIMIT_S else ():
                try:
                    trial = Trial(subject, choice_by_path)
                    is_finite = trial.run(candidate).is_finite
                    if is_finite and any(tensor.values.startswith("mask") for tensor in trial.inputs):
                        with contextlib.suppress(Exception):  # A masked row of one element must stay finite.
                            is_finite = trial.run(dict.fromkeys(candidate, 1)).is_finite
                except Exception as error:
                    errors.append((group is different, error))
                    continue
                if is_finite:
                    return with_largest_indices(trial, choices, candidate), candidate
                nonfinite_call = nonfinite_call or (trial, candidate)
        if nonfinite_call:
            return nonfinite_call
    # The first error with equal sizes says most: it is not about sizes that do not fit each other.
    raise _explain_no_call(subject, choices, min(errors, key=lambda entry: entry[0])[1])


def _explain_no_call(subject: Subject, choices: Choices, error: Exception) -> UsageError:
    """The error that says what to add. `error`: of the likeliest call; it is returned if it is a UsageError."""
    if isinstance(error, UsageError):
        return error
    text = describe_error(error)
    if "does not require grad" in text:
        hint = "references run under torch.no_grad(): compute under `torch.enable_grad()`, and detach outputs"
        return UsageError(f"{subject.full_name} does not run: {text}", hint)
    guessed = [path for path, items in choices.by_path.items() if len(items) > 1 and not items[0].inputs]
    hint = "give sizes that fit, by number where one depends on another: --like x=8,64; a type: --like x=N:int64"
    if guessed:
        hint = f"give values that fit: {' '.join(f'--set {path}=VALUE' for path in guessed)}; or {hint}"
    message = f"{subject.full_name} does not run with any sizes and values that `loop init` tried: {text}"
    return UsageError(message, hint)


def with_largest_indices(trial: Trial, choices: Choices, sizes: dict[str, int]) -> Trial:
    """The trial with each index tensor bounded by the largest size that runs, so that all rows are reached."""
    for path, choice in trial.choices.items():
        if not any(tensor.values in ("index", "distinct") for tensor in choice.inputs):
            continue
        values = choice.inputs[0].values
        others = [other for other in choices.by_path[path] if other.inputs and other.inputs[0].values == values]
        for other in sorted(others, key=lambda other: -sizes.get(other.inputs[0].high, 0)):
            candidate = Trial(trial.subject, {**trial.choices, path: other})
            with contextlib.suppress(Exception):
                if candidate.run(sizes).is_finite:
                    trial = candidate
                    break
    return trial


def try_function(terms: TrialTerms) -> TargetFacts:
    """The facts of the target, with the text of its Python files. Raises UsageError."""
    choices = Choices(terms.likes, terms.values, terms.attributes)
    subject = find_subject(terms, choices)
    shapes = [spec.dims for path, specs in terms.likes.items() if path in choices.used for spec in specs]
    if not shapes:
        raise UsageError(f"no input of {subject.full_name} has a shape", f"{terms.command_line} --like x=N,M")
    sizes = Sizes(shapes, terms.fixed_sizes)
    trial, base_sizes = search_call(subject, choices, sizes)
    trial.check_results(base_sizes)
    facts = gather_facts(trial, base_sizes, sizes, choices)
    modules = terms.module_names
    files = {modules["reference"]: trial.wrapper("What is right")}
    if terms.attributes is None:  # No kernel or program: the first variant is a copy of the reference.
        title = "Your variant, to be made faster. It begins as the reference"
        files[modules["mine"]] = trial.wrapper(title)
    if facts.needs_generator:
        files[modules["inputs"]] = trial.generator(modules["reference"])
    return facts.model_copy(update={"files": files})


def main(terms: TrialTerms) -> TrialResult:
    """Try the function, with its folder on `sys.path`. Any error becomes what the user has to mend."""
    sys.path.insert(0, terms.folder)
    torch_side.use_threads(1)
    try:
        return TrialResult(facts=try_function(terms))
    except UsageError as error:
        return TrialResult(problem=error.message, hint=error.hint)
    except Exception as error:
        return TrialResult(problem=f"{terms.module}:{terms.name}: {describe_error(error)}")


if __name__ == "__main__":
    result = main(TrialTerms.model_validate_json(Path(sys.argv[1]).read_text()))
    Path(sys.argv[2]).write_text(result.model_dump_json())

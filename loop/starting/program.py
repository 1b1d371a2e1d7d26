"""The program that tries a function for `loop init`, in a process because it imports the user's
module.

`python -m loop.starting.program REQUEST ANSWER`: files with an `InitRequest` and an `InitAnswer` as
JSON. The program finds arguments that the function accepts, calls it with several sizes and values,
and writes the files.
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
from pydantic import TypeAdapter

from loop.base.documents import did_you_mean
from loop.base.errors import UsageError
from loop.base.places import MANIFEST
from loop.calls import callee
from loop.calls.own_modules import describe_error
from loop.formats.model import read_text
from loop.starting.choices import Choice, Choices
from loop.starting.command import InitOptions, read_options
from loop.starting.facts import Sizes, Subject, Trial, check_results, gather_facts, manifest
from loop.starting.model import InitAnswer, InitRequest
from loop.starting.source import identifier, with_dtypes, write_entry

LIMIT_S, MOST_TRIES = 40.0, 1000  # Limits of the search: seconds, and combinations of choices.
MODULE_ROLES = ("reference", "mine", "inputs")  # What is right, the variant, the generator.


def find_subject(options: InitOptions, function: str, choices: Choices) -> Subject:
    """Import the user's function, class or method (`Scaler.apply`), and add its parameters to
    `choices`. Of a module `forward` is called, of another class the method or `__call__`.
    `function`: the target's name for it. Raises UsageError if there is no such thing."""
    module, name = options.module, options.name
    member: Any
    try:
        owner = member = callee.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # The user's module itself imports what is missing.
        file = f"{module.partition('.')[0]}.py"
        hint = f"start the command in the folder of {file}, or pip install it"
        message = f"{module}: no module `{error.name}` here or among the installed packages"
        raise UsageError(message, hint) from error
    for word in name.split("."):
        owner, member = member, getattr(member, word, None)
        if member is None:
            names = [key for key, value in vars(owner).items() if callable(value) and key[0] != "_"]
            hint = did_you_mean(word, names) or f"it has {', '.join(names[-8:]) or 'none'}"
            raise UsageError(f"{module}: no `{word}` there", hint)
    # `word`: the last part of the name; `member`: what it names, in `owner`.
    is_method = inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, word))
    class_or_function = owner if is_method else member
    if not inspect.isclass(class_or_function):
        call = choices.add_arguments(member)
        return Subject(module, name, function, call, imports=tuple(choices.imports))
    is_module = issubclass(class_or_function, torch.nn.Module)
    if is_module and is_method and word != "forward":
        message = f"{module}:{name} is a method of a module"
        raise UsageError(message, f"name the module: {owner.__name__}")
    method = word if is_method else "forward" if is_module else "__call__"
    choices.reserved.add("weights")  # The parameter for its tensors.
    call = choices.add_arguments(getattr(class_or_function, method), bound=True)
    choices.is_constructor = True
    return Subject(
        module,
        name.rpartition(".")[0] if is_method else name,
        function,
        call,
        kind="module" if is_module else "object",
        method=method,
        constructor=choices.add_arguments(class_or_function),
        imports=tuple(choices.imports),
    )


def check_names(full_name: str, choices: Choices, command_line: str) -> None:
    """Raise UsageError for an option without parameter, a parameter without shape or value, or if
    no input has a shape. `command_line`: the user's, to which a hint appends what is missing."""
    names = {*choices.used, *(choices.kernel_numbers or ())}
    for option, paths in (("--like", choices.likes), ("--set", choices.values)):
        for path in paths:
            if path not in names:
                message = f"{full_name} has no parameter `{path}`: {', '.join(choices.names)}"
                raise UsageError(f"{option} {path}: {message}", did_you_mean(path, choices.names))
    if choices.missing:
        names_text = ", ".join(f"`{path}`" for path in choices.missing)
        message = f"{names_text} of {full_name} has no shape and no value"
        likes = " ".join(f"--like {path}=N,M" for path in choices.missing)
        values = " ".join(f"--set {path}=VALUE" for path in choices.missing)
        raise UsageError(message, f"{command_line} {likes}; or, where it is no tensor, {values}")
    if choices.used.isdisjoint(choices.likes):
        raise UsageError(f"no input of {full_name} has a shape", f"{command_line} --like x=N,M")


def combinations_of_rank(choices: Sequence[Sequence[Choice]], rank: int) -> Iterator[list[Choice]]:
    """Combinations of one choice per list whose indices sum to `rank`; of the likeliest it is 0."""
    if not choices:
        yield from [[]] if rank == 0 else []
        return
    for index, first in enumerate(choices[0][: rank + 1]):
        for others in combinations_of_rank(choices[1:], rank - index):
            yield [first, *others]


def search_call(subject: Subject, choices: Choices, sizes: Sizes) -> Trial:
    """Search a call that runs, if possible with finite outputs. Likely choices come first, each on
    all sizes. Raises UsageError, with the error of the likeliest call."""
    began, choice_lists = time.monotonic(), list(choices.by_path.values())
    ranks = range(1 + sum(len(items) - 1 for items in choice_lists))
    combinations = (each for rank in ranks for each in combinations_of_rank(choice_lists, rank))
    first_error = nonfinite_trial = None
    for combination in itertools.islice(combinations, MOST_TRIES):
        choice_by_path = dict(zip(choices.by_path, combination, strict=True))
        for base in sizes.candidates if time.monotonic() - began < LIMIT_S else ():
            try:
                trial = Trial(subject, choice_by_path, base)
                is_finite = trial.run(base).is_finite
                if is_finite and any(tensor.values.startswith("mask") for tensor in trial.inputs):
                    with contextlib.suppress(Exception):  # A masked row of 1 must stay finite.
                        is_finite = trial.run(dict.fromkeys(base, 1)).is_finite
            except Exception as error:
                first_error = first_error or error
                continue
            if is_finite:
                return with_largest_indices(trial, choices)
            nonfinite_trial = nonfinite_trial or trial
    if nonfinite_trial:
        return nonfinite_trial
    if isinstance(first_error, UsageError):
        raise first_error
    assert first_error is not None
    text = describe_error(first_error)
    if "does not require grad" in text:
        hint = "references run under torch.no_grad(): use `torch.enable_grad()`, and detach outputs"
        raise UsageError(f"{subject.full_name} does not run: {text}", hint)
    guessed = [path for path, items in choices.by_path.items() if items[1:] and not items[0].inputs]
    values = " ".join(f"--set {path}=VALUE" for path in guessed or ["name"])
    hint = "give sizes that fit, by number where one depends on another: --like x=8,64; "
    hint += f"a type: --like x=N:int64; a value: {values}"
    message = f"{subject.full_name} does not run with any sizes and values that were tried: {text}"
    raise UsageError(message, hint)


def with_largest_indices(trial: Trial, choices: Choices) -> Trial:
    """The trial with each index tensor bounded by the largest size that runs, to reach all rows."""
    for path, choice in trial.choices.items():
        if not choice.inputs or choice.inputs[0].values != "index":
            continue
        others = [other for other in choices.by_path[path] if other.inputs[0].values == "index"]
        for other in sorted(others, key=lambda other: -trial.base.get(other.inputs[0].high, 0)):
            candidate = Trial(trial.subject, {**trial.choices, path: other}, trial.base)
            with contextlib.suppress(Exception):
                if candidate.run(trial.base).is_finite:
                    trial = candidate
                    break
    return trial


def make_target(request: InitRequest, options: InitOptions) -> InitAnswer:
    """Try the function, and make the target's files. Raises UsageError."""
    kernel, likes, kernel_numbers = options.kernel, options.likes, None
    plain = kernel.plain if kernel else None
    last_name = options.name.rpartition(".")[2]
    is_plain = last_name.islower() and last_name != "forward"
    function = kernel.function if kernel else last_name if is_plain else identifier(options.name)
    if kernel:  # An exported entry names none.
        kernel_numbers = [number.name for number in plain.numbers] if plain else []
    if plain:
        likes = with_dtypes(likes, plain)
    choices = Choices(likes, options.values, kernel_numbers)
    subject = find_subject(options, function, choices)
    check_names(f"{options.module}:{options.name}", choices, request.command_line())
    names = {path.rpartition(".")[2].lower() for path in (*choices.names, *choices.by_path)}
    if not names.isdisjoint(letter.lower() for letter in options.fixed_sizes):
        return make_target(request, read_options(request, names))  # With other letters.
    shapes = [like.dims for path, like in likes.items() if path in choices.used]
    sizes = Sizes(shapes, options.fixed_sizes)
    trial = search_call(subject, choices, sizes)
    check_results(trial, str(options.folder))
    is_cuda = any(name.endswith(".cu") for name in options.files)
    tries_long = request.tries_long_sizes
    facts = gather_facts(trial, sizes, choices, is_cuda=is_cuda, tries_long_sizes=tries_long)
    # The user's files keep their names: ours give way.
    modules = {}
    for role in MODULE_ROLES:
        modules[role] = f"{role}_of_target" if f"{role}.py" in options.files else role
    files = {name: read_text(path) for name, path in options.files.items()}
    files[f"{modules['reference']}.py"] = trial.wrapper("What is right")
    if trial.needs_generator:
        files[f"{modules['inputs']}.py"] = trial.generator(modules["reference"])
    if kernel and plain:
        outputs = [output for output in facts.outputs if output.name not in facts.updates]
        files[kernel.source], entry_notes = write_entry(
            plain, trial.inputs, outputs, trial.attributes, options.values, options.fixed_sizes
        )
        trial.notes += entry_notes
    if kernel:
        edit, variant = next(iter(kernel.files)), kernel.yaml_line
    else:
        edit = f"{modules['mine']}.py"
        files[edit] = trial.wrapper("Your variant, to be made faster. It begins as the reference")
        fields = f"module: {modules['mine']}, function: {function}"
        variant = f"mine: {{kind: python, device: any, {fields}}}"
    files[MANIFEST] = manifest(request.folder, trial, facts, variant, modules)
    return InitAnswer(files=files, edit=edit, notes=tuple(trial.notes))


def main(request: InitRequest) -> InitAnswer:
    """Make the target, with the function's folder on `sys.path`. Any error becomes a `problem`."""
    options = read_options(request)
    sys.path.insert(0, str(options.folder))
    callee.use_threads(1)
    try:
        return make_target(request, options)
    except UsageError as error:
        return InitAnswer(problem=error.message, hint=error.hint)
    except Exception as error:
        return InitAnswer(problem=f"{options.module}:{options.name}: {describe_error(error)}")


if __name__ == "__main__":
    request = TypeAdapter(InitRequest).validate_json(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(main(request).model_dump_json())

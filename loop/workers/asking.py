"""How the judge calls the functions of a target: makers of inputs, the reference, the task's own checker."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from loop.calls import callee as structures
from loop.calls import torch_side
from loop.calls.call import Call, FunctionTerms, TensorFile
from loop.calls.callee import Callee
from loop.calls.refusal import Refused
from loop.calls.torch_side import NAMES, TORCH_DTYPES, bytes_of, draw_others, same_bits, seed_all
from loop.model.causes import Cause
from loop.workers import judge_messages as messages
from loop.workers.serving import described
from loop.workers.values import as_input, make_tensor

MOST_DRAWN = 256 << 20
"""Bytes that several draws of all inputs may take together: larger inputs are drawn once."""
ALIGNED = 256
"""Each draw begins at a multiple of so many bytes in its file."""
ROOM = 64
"""Bytes for each element of the inputs that working out an answer may take: seven tensors of float64, and more."""
OF_ONE_CALL = ("reference", "plain", "generator")
"""What may refuse one size and take the others."""
OFFERED = ("seed", "dtype", "device")
"""What a generator is given only where it asks for it."""


@dataclass
class Given:
    """The inputs of a call, and what was noticed when they were made."""

    call: Call
    """With the files of its inputs."""
    tensors: list[Tensor]
    """In their own types."""
    notes: tuple[str, ...] = ()

    def on(self, device: str) -> "Given":
        """The same inputs on a device."""
        return replace(self, tensors=[one.to(device) for one in self.tensors])


def place_of(request: messages.Expect, given: Given) -> str:
    """Where the right answer to a call is worked out: on the GPU where half of what is free is room for it."""
    if request.device == "cpu":
        return "cpu"
    free, _ = torch.cuda.mem_get_info()
    needed = max(request.needed, ROOM * sum(one.numel() for one in given.tensors))
    return "cuda" if needed < free / 2 else "cpu"


class Asking:
    """The functions of a target, and how each is called."""

    def __init__(self, terms: messages.Begin) -> None:
        self.terms, self.shapes, self.modules = terms, terms.shapes, torch_side.Maker()
        self.maker, self.generator, self.checker, self.arguments = (
            torch_side.find(name) if name else None
            for name in (terms.inputs, terms.generator, terms.checker, terms.arguments)
        )

    def is_plain(self, call: Call) -> bool:
        """Whether a call has tensors one by one and gives one."""
        return not (call.structure or call.parts or self.terms.is_class)

    def sizes(self, call: Call) -> dict[str, int]:
        """The size of each dimension of a call, as far as the signature tells."""
        texts = (*self.shapes.inputs.values(), *self.shapes.outputs.values())
        tensors = zip(texts, (*call.inputs, *call.outputs), strict=False)
        pairs = ((text.split(), one.shape) for text, one in tensors)
        return {
            name: n
            for names, shape in pairs
            if len(names) == len(shape)
            for name, n in zip(names, shape, strict=True)
        }

    def inputs(self, request: messages.Expect) -> Given:
        """Make the inputs of a call and write them to their files."""
        if self.generator is not None:
            return self._generated(request)
        call, tensors = request.call, []
        for flat, tensor in zip(self._values(request), call.inputs, strict=True):
            torch_side.write_tensor(tensor.path, flat)
            tensors.append(torch_side.window(flat, tensor))
        return Given(call, tensors)

    def _values(self, request: messages.Expect) -> list[Tensor]:
        """What goes into the files of the inputs: by the workload's kind of values, or made by a component."""
        call, seed = request.call, request.seed
        if self.maker is None:
            given = enumerate(zip(request.values, call.inputs, strict=True))
            axes = [
                text.split().index(fill.nan_along) if fill.nan_along else None
                for fill, text in zip(request.values, self.shapes.inputs.values(), strict=True)
            ]
            return [make_tensor(fill, seed, n, tensor, axes[n]) for n, (fill, tensor) in given]
        maker = partial(self.maker, sizes=self.sizes(call), seed=seed)
        made = self.ask("maker of inputs", maker, [], call)
        return [as_input(one, tensor) for one, tensor in zip(made, call.inputs, strict=True)]

    def _generated(self, request: messages.Expect) -> Given:
        """Inputs by the target's own generator: several draws where there is room, one that of the seed."""
        first = self._drawn(request, request.seed)
        if request.twice and not _alike(first, self._drawn(request, request.seed)):
            raise Refused(f"the generator is not deterministic: seed {request.seed} gave two sets of inputs")
        notes: list[str] = []
        others = self._others(request, first, notes)
        draws = [*others[: request.draw], first, *others[request.draw :]] if others else [first]
        place = request.draw if others else 0
        files = []
        for n, name in enumerate(self._names(first)):
            path = f"{request.call.structure}-{n}.bin"
            files.append(_write(name, path, [one.tensors[n] for one in draws], place))
        Path(request.call.structure).write_bytes(first.rest)
        digest = structures.structure_digest(first.rest)
        call = request.call.but(inputs=tuple(files), draws=len(draws), structure_digest=digest)
        self._check_declared(call, request)
        return Given(call, list(first.tensors), tuple(notes))

    def _others(
        self, request: messages.Expect, first: structures.Apart, notes: list[str]
    ) -> list[structures.Apart]:
        """Draws of other seeds; none where they have no room or another form, which is noted."""
        if request.draws == 1:
            return []
        what = f"timed calls on other values, on {request.call.key.rpartition(' #')[0]}"
        size = sum(tensor.nbytes for tensor in first.tensors)
        if size * request.draws > MOST_DRAWN:
            notes.append(f"{what}: inputs of {size / 2**20:.0f} MiB are drawn once a round")
            return []
        others = [self._drawn(request, request.seed + 104_729 * n) for n in range(1, request.draws)]
        if any(not _same_form(first, one) for one in others):
            notes.append(f"{what}: other seeds give inputs of another form")
            return []
        if first.tensors and _alike(first, others[0]):
            notes.append(f"{what}: the generator gives the same inputs for every seed")
            return []
        notes.append(
            f"whether a variant remembers more than {request.draws - 1} answers: a generator draws no more"
        )
        return others

    def _drawn(self, request: messages.Expect, seed: int) -> structures.Apart:
        """What the generator makes under a seed, taken apart."""
        dtype = TORCH_DTYPES[request.call.dtype]
        draw = partial(drawn, self.generator, request.parameters, seed, self.terms.passes, "cpu", dtype)
        made: structures.Apart = self._asked("generator", draw, request.call)
        return made

    def _names(self, apart: structures.Apart) -> list[str]:
        """The tensors' names: those of the signature, else their paths in what the function is given."""
        if len(self.shapes.inputs) == len(apart.names):
            return list(self.shapes.inputs)
        return [name.split(".", 2 if self.terms.passes == "one" else 1)[-1] for name in apart.names]

    def _check_declared(self, call: Call, request: messages.Expect) -> None:
        """Raise Refused where the generator's tensors are not as the signature has them."""
        declared = self.shapes.inputs
        if declared and len(declared) != len(call.inputs):
            raise Refused(f"the generator: expected {', '.join(declared)}, got {len(call.inputs)} tensors")
        for one, text in zip(call.inputs, declared.values(), strict=False):
            wanted = [request.parameters.get(name) for name in text.split()]
            if text != "..." and wanted != list(one.shape):
                raise Refused(f"the generator: expected {one.name} of shape {wanted}, got {list(one.shape)}")
            if one.name in self.shapes.types and self.shapes.types[one.name] != one.dtype:
                raise Refused(
                    f"the generator: expected {one.name} of {self.shapes.types[one.name]}, got {one.dtype}"
                )

    def ask(self, what: str, function: Any, inputs: Sequence[Tensor], call: Call) -> Any:
        """A function of the target on a call's inputs, one by one; Refused with its name when it raises."""
        more = {"sizes": self.sizes(call)} if torch_side.takes_sizes(function) else {}
        return self._asked(what, partial(function, *inputs, **call.attributes, **more), call)

    def outputs(
        self, what: str, function: Any, inputs: Sequence[Tensor], call: Call, *, exact: bool, later: bool = False
    ) -> tuple[dict[str, Tensor], Any]:
        """What the reference or the plain implementation gives: tensors by name, and as it came.

        `exact`: on copies in float64, to which what a module holds is widened, too. `later`: after other random
        numbers, so that one that draws some shows it. Raises Refused where it
        changes an input in the call's own types that is no output: the next to be asked would get something else.
        """
        given = [
            _wide_copy(one) if exact else one.clone() if n in call.updated else one for n, one in enumerate(inputs)
        ]
        before = [_version(one) for one in given]
        found = self._outputs(what, function, given, call, exact, later)
        for n, (one, version) in enumerate(zip(given, before, strict=True)):
            if _version(one) != version and not exact and n not in call.updated:
                raise Refused(_changed(what, _name_of_input(function, call.inputs[n].name)), "changed input")
        return found

    def _outputs(
        self, what: str, function: Any, given: list[Tensor], call: Call, exact: bool, later: bool
    ) -> tuple[dict[str, Tensor], Any]:
        if not (call.structure or self.terms.is_class or call.parts):
            result = self.ask(what, function, given, call)
            if isinstance(result, Tensor) or self.shapes.outputs:
                return {call.output.name: result}, result
        terms = FunctionTerms("", is_class=self.terms.is_class)
        bound = self._asked(what, partial(self._bound, function, terms, call, given, exact), call)
        if later:
            draw_others()
        result = self._asked(what, bound, call)
        found = structures.outputs_of(result)
        names = list(self.shapes.outputs) or list(found)
        found = self._with_updates(found, names, given)
        if len(found) != len(names):
            raise Refused(f"the {what} on {call.key}: expected {', '.join(names)}, got {len(found)} tensors")
        for name, tensor in found.items():
            if not isinstance(tensor, Tensor):
                raise Refused(f"the {what} on {call.key}: {name} is a {type(tensor).__name__} and no tensor")
        place = given[0].device if given else torch.device("cpu")
        return {name: one.detach().to(place) for name, one in zip(names, found.values(), strict=True)}, result

    def _with_updates(self, found: dict[str, Any], names: list[str], given: list[Tensor]) -> dict[str, Any]:
        """What was found, with the inputs that were changed in place where a function gives only the rest."""
        kept = self.terms.updates
        if not kept or len(found) != len(names) - len(kept):
            return found
        rest, held = iter(found.values()), dict(zip(self.shapes.inputs, given, strict=False))
        return {name: held[kept[name]] if name in kept else next(rest) for name in names}

    def _bound(self, function: Any, terms: FunctionTerms, call: Call, given: list[Tensor], exact: bool) -> Any:
        device = next((str(one.device) for one in given), "cpu")
        callee = Callee(function, self.arguments, terms, call, device, watched=False, make=self.modules.made)
        if exact and callee.module is not None:
            callee.module.double()
        return callee.bind(given)

    def check(self, given: Given, expected: Any, outputs: Sequence[Tensor]) -> str:
        """What the task's own checker says against outputs; empty where nothing. Refused when it raises."""
        assert self.checker is not None
        call = given.call
        rest = structures.take_apart(expected)
        if len(rest.tensors) != len(outputs):
            told = f"it gives {len(outputs)} outputs, of which {len(rest.tensors)} are tensors of their own"
            raise Refused(f"the checker cannot be given what the reference gives on {call.key}: {told}")
        placed = [one.to(like.device) for one, like in zip(outputs, rest.tensors, strict=True)]
        own: dict[str, Any] = {
            "inputs": self._as_given(given),
            "expected": expected,
            "outputs": structures.put_together(rest.rest, placed),
        }
        arguments = [own[name] for name in self.terms.given]
        said: str = self._asked("checker", partial(said_of, partial(self.checker, *arguments)), call)
        return said

    def _as_given(self, given: Given) -> Any:
        """The inputs as the generator gave them."""
        tensors = [one.clone() for one in given.tensors]
        if not given.call.structure:
            return tensors
        return as_given(structures.structure_of(given.call), tensors, self.terms.passes)

    def _asked(self, what: str, asked: Any, call: Call) -> Any:
        """What a function of the target gives; Refused with its name and place when it raises."""
        try:
            return asked()
        except (Refused, torch.OutOfMemoryError):  # Who is out of a GPU's memory asks again, on the CPU.
            raise
        except Exception as error:
            cause: Cause = "raised" if what in OF_ONE_CALL else "unusable"
            raise Refused(f"the {what} on {call.key}: {described(error)}", cause) from error


def drawn(
    generator: Any,
    given: Mapping[str, Any],
    seed: int,
    passes: str,
    device: str,
    dtype: torch.dtype = torch.float32,
) -> structures.Apart:
    """What a generator makes under a seed, taken apart: everything is seeded, it is told what it asks for."""
    arguments = call_arguments(generator, given, seed, torch.device(device), dtype)
    seed_all(seed)
    return structures.take_apart(_passed(generator(**arguments), passes))


def _passed(value: Any, how: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments and keywords of the function, from what the generator returned."""
    if how == "one":
        return (value,), {}
    if how == "keywords":
        if not isinstance(value, dict):
            raise Refused(f"the generator gives a {type(value).__name__}: expected a dict of keywords")
        return (), value
    if isinstance(value, Tensor) or not isinstance(value, Sequence):
        raise Refused(f"the generator gives a {type(value).__name__}: expected a list or tuple of arguments")
    return tuple(value), {}


def as_given(rest: bytes, tensors: Sequence[Tensor], passes: str) -> Any:
    """Inputs as the generator gave them, around these tensors."""
    positional, keywords = structures.put_together(rest, tensors)
    if passes == "one":
        return positional[0]
    return keywords if passes == "keywords" else list(positional)


def call_arguments(
    generator: Any, given: Mapping[str, Any], seed: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> dict[str, Any]:
    """Keywords of a generator's call: those given, and of seed, type and device those that it asks for."""
    known, offered = _parameters(generator), {"seed": seed, "dtype": dtype, "device": device}
    return {name: offered[name] for name in OFFERED if name in known} | dict(given)


def said_of(check: Callable[[], Any]) -> str:
    """What a checker says against an output: it gives a truth value, a message, or both, or asserts otherwise."""
    try:
        said = check()
    except AssertionError as error:
        return str(error) or "the task's checker asserts otherwise"
    if isinstance(said, tuple) and len(said) == 2:
        right, message = said
        return "" if right else str(message) or "the task's checker says no"
    if isinstance(said, str):
        return said
    return "" if said is None or bool(said) else "the task's checker says no"


def _changed(what: str, name: str) -> str:
    """What is said of a function of the target that changes an input."""
    return (
        f"the {what} itself changes its input `{name}`, so nothing is judged: let it change a copy (`{name} = "
        f"{name}.clone()`), or name `{name}` under `updates` in target.yaml; then run the same command again"
    )


def _name_of_input(function: Any, name: str) -> str:
    """The name of an input; where that is a number, the parameter in this place of a function or class."""
    names = [one for one in _parameters(getattr(function, "forward", function)) if one != "self"]
    return names[int(name)] if name.isdigit() and int(name) < len(names) else name


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place, as far as torch counts that."""
    return 0 if tensor.is_inference() else tensor._version


def _wide_copy(tensor: Tensor) -> Tensor:
    """A copy, in float64 where it has floating-point numbers."""
    return tensor.to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)


def _parameters(function: Any) -> Sequence[str]:
    """Names of a function's parameters; none where it does not say."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def _same_form(one: structures.Apart, other: structures.Apart) -> bool:
    """Whether two draws differ in the values of tensors alone."""
    forms = [[(tensor.shape, tensor.dtype) for tensor in draw.tensors] for draw in (one, other)]
    return one.rest == other.rest and forms[0] == forms[1]


def _alike(one: structures.Apart, other: structures.Apart) -> bool:
    """Whether two draws are the same."""
    pairs = zip(one.tensors, other.tensors, strict=False)
    return _same_form(one, other) and all(same_bits(a, b) for a, b in pairs)


def _bytes(tensor: Tensor) -> bytes:
    return bytes_of(tensor.detach().cpu().contiguous())


def _write(name: str, path: str, draws: Sequence[Tensor], place: int) -> TensorFile:
    """Write the draws of one input to its file; the tensor there, its window on the draw at that place."""
    first = draws[0]
    if first.dtype not in NAMES:
        raise Refused(f"the generator: {name} is of {first.dtype}, which is not supported")
    step = -(-first.nbytes // ALIGNED) * ALIGNED
    single = len(draws) == 1
    data = _bytes(first) if single else b"".join(_bytes(one).ljust(step, b"\0") for one in draws)
    Path(path).write_bytes(data)
    file = TensorFile(name, path, tuple(first.shape), NAMES[first.dtype])
    elements = step // first.element_size()
    return file if single else file.but(room=len(draws) * elements - file.elements, offset=place * elements)

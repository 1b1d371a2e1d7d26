"""How the judge calls the target's functions: input generators, reference, the task's checker."""

import base64
import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
from torch import Tensor

from loop.calls import callee
from loop.calls.call import Call, FunctionTerms, Refused, TensorFile
from loop.calls.callee import (
    DTYPE_NAMES,
    TORCH_DTYPES,
    Callee,
    SplitStructure,
    bytes_of,
    rebuild_structure,
    same_bits,
    seed_all,
    split_structure,
)
from loop.calls.own_modules import describe_error
from loop.model.causes import Cause
from loop.model.target import Fill
from loop.workers.judge_messages import PrepareAnswer, SetTarget
from loop.workers.workload_call import input_fills

MAX_DRAWN_BYTES = 256 << 20  # For all draws of all inputs together. Larger inputs are drawn once.
NUMBERS_PER_BLOCK = 1 << 16  # Random numbers drawn in one step.
LARGEST_INT16 = (1 << 15) - 1  # A longer axis has places that an index of 16 bits does not hold.
DRAW_ALIGNMENT_BYTES = 256  # Alignment in bytes of each draw in the input's file.
MAY_FAIL_FOR_ONE_SIZE = ("reference", "plain", "generator")  # Other sizes are still judged.
MAX_INPUTS = 64  # Inputs with seeds of their own, different for every seed of a workload.
SEED_STEP = 104_729  # Between the seeds of several draws: a prime, so that they rarely meet.


def make_tensor(
    fill: Fill, seed: int, input_position: int, file: TensorFile, nan_axis: int | None = None
) -> Tensor:
    """Draw one input tensor, flat [elements + extra elements], in its own element type: its file's
    content. `nan_axis`: one random index along it is NaN. For odd seeds the extreme values of each
    axis go to its ends: loops that stop early fail. On a long axis both go to its last two places,
    the maximum for even seeds, too: 16-bit indices fail. First values repeat on `constant_axis`."""
    stream, shape = seed * MAX_INPUTS + input_position, file.shape
    random_state = numpy.random.RandomState(stream % 2**32)  # The same in every release (NEP 19).
    number_type = numpy.float64 if file.dtype == "float64" else numpy.float32
    values = numpy.full(shape, fill.scale, dtype=number_type)
    if fill.kind in ("normal", "zeros"):
        values = numpy.empty(file.elements + file.extra_elements, dtype=number_type)
        for begin in range(0, len(values), NUMBERS_PER_BLOCK):  # Blocks stay in the cache.
            block = values[begin : begin + NUMBERS_PER_BLOCK]
            block[:] = random_state.standard_normal(len(block)) * fill.scale
    if fill.kind == "zeros" and len(values) > 1:
        rows = values.reshape(-1, shape[-1])
        rows[0, :: 1 if len(rows) > 1 else 2] = 0  # A vector has other values, too.
        rows[numpy.arange(len(rows)), numpy.arange(len(rows)) % shape[-1]] = 0
    elif fill.kind == "one_hot" and values.size:
        is_hot = numpy.arange(shape[-1]) == random_state.randint(shape[-1], size=(*shape[:-1], 1))
        values = numpy.where(is_hot, numpy.float32(fill.scale), numpy.float32(0))
    if fill.offset:  # In float64: a small deviation around a large mean is rounded once.
        values = (values.astype(numpy.float64) + fill.offset).astype(number_type)
    if nan_axis is not None and values.size:
        values = values.reshape(shape)
        numpy.moveaxis(values, nan_axis, 0)[random_state.randint(shape[nan_axis])] = numpy.nan
    if fill.kind == "normal" and not file.extra_elements:
        values = values.reshape(shape)
        for axis in random_state.permutation(values.ndim):  # Later axes may move earlier extremes.
            lines = numpy.moveaxis(values, axis, -1)
            is_long = nan_axis is None and shape[axis] > LARGEST_INT16 + 2
            ends = [(numpy.argmax, -1), (numpy.argmin, -2 if is_long else 0)]
            ends = ends if seed % 2 else ends[:1] if is_long else []
            for find_extremes, end in ends if lines.size else ():
                positions = find_extremes(lines, axis=-1)[..., None]
                extremes = numpy.take_along_axis(lines, positions, -1)[..., 0]
                numpy.put_along_axis(lines, positions, lines[..., end, None].copy(), -1)
                lines[..., end] = extremes
    if file.constant_axis >= 0 and values.size:
        values = numpy.broadcast_to(values.reshape(shape).take([0], axis=file.constant_axis), shape)
    return torch.from_numpy(values.reshape(-1)).to(TORCH_DTYPES[file.dtype])


@dataclass
class Inputs:
    """The inputs of a call in their own element types, and notes on what they cannot test."""

    call: Call  # The call, with the files of these inputs.
    tensors: list[Tensor]
    notes: tuple[str, ...] = ()

    def copy_to(self, device: str) -> "Inputs":
        """Return the same inputs on a device."""
        return replace(self, tensors=[tensor.to(device) for tensor in self.tensors])


class TargetFunctions:
    """Python functions that a target names: the reference, and others, None if it names none."""

    def __init__(self, terms: SetTarget) -> None:
        target, component = terms.target, terms.component
        self.target, self.signature = target, target.signature
        self.are_classes = target.modules is not None  # Whether they have to be instantiated.
        self.input_passing = target.generator.passes if target.generator else "positional"
        """How the function receives its inputs: `positional`, `keywords` or `one` (one object)."""

        def find(function: Any) -> Any:
            """Load a function that the target names; None if it names none."""
            return callee.find_function(function.python) if function else None

        self.reference, self.plain = find(target.reference), find(target.plain)
        self.generator, self.checker = find(target.generator), find(target.checker)
        self.faults = {words: find(function) for words, function in target.faults.items()}
        self.input_maker = find(component.inputs) if component else None
        """Maker of a component's inputs; None: inputs come from the workload's fills."""
        self.canonical_form = find(component.form) if component else None
        """Brings outputs of a component into the form of comparison; None: compare them as is."""
        self.constructor_arguments = find(target.modules.arguments) if target.modules else None

    def has_plain_signature(self, call: Call) -> bool:
        """Whether the function takes its tensors one by one and returns a single tensor."""
        return not (call.structure or call.several_outputs or self.are_classes)

    def dimension_sizes(self, call: Call) -> dict[str, int]:
        """Map dimension names such as `N` to sizes, for the dimensions that the signature names."""
        dimension_texts = (*self.signature.inputs.values(), *self.signature.outputs.values())
        sizes: dict[str, int] = {}
        for text, tensor in zip(dimension_texts, (*call.inputs, *call.outputs), strict=False):
            names = text.split()
            if len(names) == len(tensor.shape):
                sizes |= zip(names, tensor.shape, strict=True)
        return sizes

    def make_inputs(self, request: PrepareAnswer) -> Inputs:
        """Make the inputs of a call and write them to their files: by the target's generator, the
        component's own `inputs` function, or the workload's fills (kinds of random values)."""
        if self.generator is not None:
            return self._generate_inputs(request)
        call, seed = request.call, request.workload.seed
        if self.input_maker is None:
            fills, nan_axes = input_fills(self.target, request.workload), []
            for fill, text in zip(fills, self.signature.inputs.values(), strict=True):
                nan_axes.append(text.split().index(fill.nan_along) if fill.nan_along else None)
            columns = (fills, repeat(seed), range(len(fills)), call.inputs, nan_axes)
            is_large = sum(file.elements for file in call.inputs) > NUMBERS_PER_BLOCK
            with ThreadPoolExecutor() as threads:  # Kept threads would keep their OpenMP teams.
                draw: Any = threads.map if is_large else map  # NumPy releases the GIL.
                contents = list(draw(make_tensor, *columns))
        else:
            make_inputs = partial(self.input_maker, sizes=self.dimension_sizes(call), seed=seed)
            contents = list(self.call_function("maker of inputs", make_inputs, [], call))
        tensors = []
        for values, file in zip(contents, call.inputs, strict=True):
            shape = list(values.shape) if type(values) is Tensor else type(values).__name__
            if self.input_maker is not None and shape != list(file.shape):
                expected = f"expected {file.name} of shape {list(file.shape)}"
                raise Refused(f"the maker of inputs: {expected}, got {shape}")
            flat = values.reshape(-1).to(TORCH_DTYPES[file.dtype])
            Path(file.path).write_bytes(callee.bytes_of(flat))
            known_window = flat[file.offset : file.offset + file.elements]
            tensors.append(known_window.reshape(file.shape))
        return Inputs(call, tensors)

    def _generate_inputs(self, request: PrepareAnswer) -> Inputs:
        """Make the inputs with the target's own generator. Timed calls get several draws, so each
        reads new values. The judge knows one answer: of the workload's seed, at `draw_position`.
        Raises Refused for a generator that fails, or does not fit the signature."""
        seed = request.workload.seed
        known_draw = self._draw(request, seed)
        if request.checks_determinism:
            again = self._draw(request, seed)
            is_equal = all(map(same_bits, known_draw.tensors, again.tensors))
            if known_draw.skeleton != again.skeleton or not is_equal:
                reason = f"seed {seed} gave two sets of inputs"
                raise Refused(f"the generator is not deterministic: {reason}")
        draws, position, note = [known_draw], 0, ""
        if request.draws > 1:
            other_draws, note = self._draw_other_seeds(request, known_draw)
            position = request.draw_position if other_draws else 0
            draws = [*other_draws[:position], known_draw, *other_draws[position:]]
        declared, count = self.signature.inputs, len(known_draw.tensors)
        if declared and len(declared) != count:
            raise Refused(f"the generator: expected {', '.join(declared)}, got {count} tensors")
        expected_inputs, types = list(declared.items()), self.signature.types
        if not declared:  # Name them by their paths in the structure; any shape (`...`) and type.
            depth, types = 2 if self.input_passing == "one" else 1, {}
            expected_inputs = [(path.split(".", depth)[-1], "...") for path in known_draw.names]
        arguments, files = {**request.workload.sizes, **request.workload.attributes}, []
        for number, (name, dimensions) in enumerate(expected_inputs):
            tensors = [draw.tensors[number] for draw in draws]
            tensor, nbytes = tensors[0], tensors[0].nbytes
            path = f"{request.call.output.path}.input-{number}"
            if tensor.dtype not in DTYPE_NAMES:
                raise Refused(f"the generator: {name} is of {tensor.dtype}, which is not supported")
            dtype = DTYPE_NAMES[tensor.dtype]
            refusal = f"the generator: expected {name}"
            shape = [arguments.get(size) for size in dimensions.split()]
            if dimensions != "..." and shape != list(tensor.shape):
                raise Refused(f"{refusal} of shape {shape}, got {list(tensor.shape)}")
            if types.get(name, dtype) != dtype:
                raise Refused(f"{refusal} of {types[name]}, got {dtype}")
            # One file holds all draws, each aligned; those without an answer are extra elements.
            if len(draws) > 1:
                nbytes = -(-nbytes // DRAW_ALIGNMENT_BYTES) * DRAW_ALIGNMENT_BYTES
            host_tensors = (drawn.detach().cpu().contiguous() for drawn in tensors)
            contents = [bytes_of(drawn).ljust(nbytes, b"\0") for drawn in host_tensors]
            Path(path).write_bytes(b"".join(contents))
            file = TensorFile(name, path, tuple(tensor.shape), dtype)
            stride = nbytes // tensor.element_size()
            extra_elements = len(draws) * stride - file.elements
            files.append(file.replace(extra_elements=extra_elements, offset=position * stride))
        structure = base64.b64encode(known_draw.skeleton).decode()
        call = request.call.replace(inputs=tuple(files), input_sets=len(draws), structure=structure)
        return Inputs(call, list(known_draw.tensors), (note,) if note else ())

    def _draw_other_seeds(
        self, request: PrepareAnswer, known_draw: SplitStructure
    ) -> tuple[list[SplitStructure], str]:
        """Draw inputs from other seeds than `known_draw`; return them, and what stays untested. No
        draws if they need too much memory, differ in shape, or do not depend on the seed."""
        purpose = f"timed calls on other values, on {request.call.key.rpartition(' #')[0]}"
        draw_bytes = sum(tensor.nbytes for tensor in known_draw.tensors)
        if draw_bytes * request.draws > MAX_DRAWN_BYTES:
            return [], f"{purpose}: inputs of {draw_bytes / 2**20:.0f} MiB are drawn once a round"
        seeds = [request.workload.seed + SEED_STEP * n for n in range(1, request.draws)]
        draws = [self._draw(request, seed) for seed in seeds]
        forms = []
        for draw in (known_draw, *draws):
            forms.append((draw.skeleton, [(tensor.shape, tensor.dtype) for tensor in draw.tensors]))
        if any(form != forms[0] for form in forms):
            return [], f"{purpose}: other seeds give inputs of another form"
        if known_draw.tensors and all(map(same_bits, known_draw.tensors, draws[0].tensors)):
            return [], f"{purpose}: the generator gives the same inputs for every seed"
        untested = f"whether a variant remembers more than {len(draws)} answers"
        return draws, f"{untested}: a generator draws no more"

    def _draw(self, request: PrepareAnswer, seed: int) -> SplitStructure:
        """Draw one set of inputs with the target's generator, on the CPU."""
        arguments = {**request.workload.sizes, **request.workload.attributes}
        settings = arguments, seed, self.input_passing, "cpu", request.call.dtype
        draw = partial(draw_inputs, self.generator, *settings)
        return self._call_or_refuse("generator", draw, request.call)  # type: ignore[no-any-return]

    def call_function(self, role: str, function: Any, inputs: Sequence[Tensor], call: Call) -> Any:
        """Call a target's function with the tensors by position and the call's attributes by
        keyword. `role`: such as `reference`, for error messages. Raises Refused if it raises."""
        keywords = {**call.attributes, **self._sizes_keyword(function, call)}
        return self._call_or_refuse(role, partial(function, *inputs, **keywords), call)

    def _sizes_keyword(self, function: Any, call: Call) -> dict[str, Any]:
        """The keyword `sizes` (by dimension), if the function has it unbound; else empty."""
        is_bound = isinstance(function, partial) and "sizes" in function.keywords
        takes_sizes = "sizes" in _parameter_names(function) and not is_bound
        return {"sizes": self.dimension_sizes(call)} if takes_sizes else {}

    def compute_outputs(
        self, role: Literal["reference", "plain"], inputs: Sequence[Tensor], call: Call, exact: bool
    ) -> tuple[dict[str, Tensor], Any]:
        """Run the reference or `plain`; return its outputs by name (copies: it may reuse buffers)
        and the raw result. `exact`: with inputs and weights in float64. Raises Refused if it
        changes an input that is not an output: the next function would read the new values."""
        function, tensors = self.reference if role == "reference" else self.plain, list(inputs)
        for position, tensor in enumerate(inputs):
            if exact:
                dtype = torch.float64 if tensor.is_floating_point() else tensor.dtype
                tensors[position] = tensor.to(dtype, copy=True)
            elif position in call.updated_inputs:
                tensors[position] = tensor.clone()
        device = tensors[0].device if tensors else torch.device("cpu")

        def bind() -> Any:
            """The function, or an instance of the class, bound to the tensors."""
            terms = FunctionTerms("", is_class=self.are_classes)
            settings = self.constructor_arguments, terms, call, str(device)
            called = Callee(function, *settings, watches_state=False)
            if exact and called.module is not None:
                called.module.double()
            takes_all = call.structure or self.are_classes  # Then it has arguments of its own.
            keywords = {} if takes_all else self._sizes_keyword(function, call)
            return partial(called.bind(tensors), **keywords)

        bound_call = self._call_or_refuse(role, bind, call)
        # Making a module seeds these generators. Two runs of a function that draws shall differ.
        random.seed(), numpy.random.seed(), torch.seed()
        # torch counts in-place changes of a tensor in `_version`.
        versions = [0 if tensor.is_inference() else tensor._version for tensor in tensors]
        result = self._call_or_refuse(role, bound_call, call)
        for position, (tensor, version) in enumerate(zip(tensors, versions, strict=True)):
            is_own_copy = exact or position in call.updated_inputs
            if is_own_copy or tensor.is_inference() or tensor._version == version:
                continue
            name = call.inputs[position].name
            if name.isdigit():  # An error names the parameter, not its position.
                names = _parameter_names(getattr(function, "forward", function))
                parameters = [parameter for parameter in names if parameter != "self"]
                name = parameters[int(name)] if int(name) < len(parameters) else name
            raise Refused(
                f"the {role} itself changes its input `{name}`, so nothing is judged: let it "
                f"change a copy (`{name} = {name}.clone()`), or name `{name}` under `updates` in "
                "target.yaml; then run the same command again",
                "changed input",
            )
        outputs = callee.outputs_by_path(result)
        names, updates = list(self.signature.outputs) or list(outputs), self.signature.updates
        if updates and len(outputs) == len(names) - len(updates):
            # The function returned only the other outputs: take each updated one from its input.
            rest = iter(outputs.values())
            input_by_name = dict(zip(self.signature.inputs, tensors, strict=False))
            outputs = {n: input_by_name[updates[n]] if n in updates else next(rest) for n in names}
        place = f"the {role} on {call.key}"
        if len(outputs) != len(names):
            raise Refused(f"{place}: expected {', '.join(names)}, got {len(outputs)} tensors")
        for path, tensor in outputs.items():
            if not isinstance(tensor, Tensor):
                raise Refused(f"{place}: {path} is a {type(tensor).__name__} and no tensor")
        copies = [tensor.detach().to(device, copy=True) for tensor in outputs.values()]
        return dict(zip(names, copies, strict=True)), result

    def run_checker(self, inputs: Inputs, expected: Any, outputs: Sequence[Tensor]) -> str:
        """Run the task's own checker and return its complaint; empty if it accepts the outputs.
        `expected`: the reference's raw result. Refused if it raises other than AssertionError."""
        assert self.checker is not None
        assert self.target.checker is not None
        call, split_result = inputs.call, split_structure(expected)
        tensor_count = len(split_result.tensors)
        if tensor_count != len(outputs):
            problem = f"the checker cannot be given what the reference gives on {call.key}"
            reason = f"it gives {len(outputs)} outputs, but {tensor_count} distinct tensors"
            raise Refused(f"{problem}: {reason}")
        pairs = zip(outputs, split_result.tensors, strict=True)
        on_device = [output.to(reference.device) for output, reference in pairs]
        copies: Any = [tensor.clone() for tensor in inputs.tensors]
        if call.structure:
            copies = rebuild_inputs(base64.b64decode(call.structure), copies, self.input_passing)
        values = {"inputs": copies, "expected": expected}
        values["outputs"] = rebuild_structure(split_result.skeleton, on_device)
        arguments = [values[name] for name in self.target.checker.given]
        check = partial(run_check, self.checker, arguments)
        return self._call_or_refuse("checker", check, call)  # type: ignore[no-any-return]

    def _call_or_refuse(self, role: str, function: Callable[[], Any], call: Call) -> Any:
        """Call a target's function. Raises Refused with its role and source line if it raises."""
        try:
            return function()
        except (Refused, torch.OutOfMemoryError):  # Without memory the caller tries the CPU.
            raise
        except Exception as error:
            cause: Cause = "raised" if role in MAY_FAIL_FOR_ONE_SIZE else "unusable"
            raise Refused(f"the {role} on {call.key}: {describe_error(error)}", cause) from error


def draw_inputs(
    generator: Any, arguments: Mapping[str, Any], seed: int, passing: str, device: str, dtype: str
) -> SplitStructure:
    """Seed all random generators, call the input generator and split its result into tensors and a
    structure of (positional arguments, keywords). `arguments`: its keywords, which win over `seed`,
    `device` and `dtype`, given only if it has them. `passing`: `input_passing`. Raises Refused."""
    settings = {"seed": seed, "dtype": TORCH_DTYPES[dtype], "device": torch.device(device)}
    parameters = _parameter_names(generator)
    keywords = {name: setting for name, setting in settings.items() if name in parameters}
    seed_all(seed)
    drawn = generator(**keywords | dict(arguments))
    type_name = type(drawn).__name__
    if passing == "one":
        return split_structure(((drawn,), {}))
    if passing == "keywords":
        if not isinstance(drawn, dict):
            raise Refused(f"the generator gives a {type_name}: expected a dict of keywords")
        return split_structure(((), drawn))
    if isinstance(drawn, Tensor) or not isinstance(drawn, Sequence):
        raise Refused(f"the generator gives a {type_name}: expected a list or tuple of arguments")
    return split_structure((tuple(drawn), {}))


def rebuild_inputs(skeleton: bytes, tensors: Sequence[Tensor], passing: str) -> Any:
    """Rebuild the generator's result around these tensors; inverse of `draw_inputs`."""
    positional, keywords = rebuild_structure(skeleton, tensors)
    if passing == "one":
        return positional[0]
    return keywords if passing == "keywords" else list(positional)


def run_check(checker: Callable[..., Any], arguments: Sequence[Any]) -> str:
    """Call a checker and return its complaint; empty if it accepts. A checker may return a bool, a
    message, or a pair of both, or raise AssertionError."""
    try:
        verdict = checker(*arguments)
    except AssertionError as error:
        return str(error) or "the task's checker asserts otherwise"
    if isinstance(verdict, tuple) and len(verdict) == 2:
        is_right, message = verdict
        return "" if is_right else str(message) or "the task's checker says no"
    if isinstance(verdict, str):
        return verdict
    return "" if verdict is None or bool(verdict) else "the task's checker says no"


def _parameter_names(function: Any) -> Sequence[str]:
    """Names of a function's parameters; empty if Python cannot inspect the function."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()

"""Possible arguments of a user's function: a tensor, a size, a value, or an object made of these.

`loop init` reads annotations, defaults and names. It tries several possibilities, the likeliest first. It runs
in a separate process, because it imports the user's module.
"""

import ast
import enum
import inspect
import keyword
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import torch

from loop.starting.model import Scalar, TensorSpec

RESERVED_NAMES = ("dtype", "values", "weight", "weights", "seed", "device", "drawn")
"""Names reserved by workloads and generators."""
LIST_LENGTH = 3  # Length of a list of tensors for which the user gives one shape.
INDEX_WORDS = "idx|ids?|index|indices|indexes|pos|positions?|labels?|tokens?|len|lengths?|lens|slots?"
INDEX = re.compile(rf"(.*_)?({INDEX_WORDS})\d?")
ORDERS = (
    (re.compile(r".*slots?(_mapping|_ids|_idx)?"), "distinct"),
    (re.compile(r".*(cu_seqlens?|indptr|offsets|crow\w*)"), "sorted"),
)
"""Names of index tensors with different values (slots), or with sorted values (offsets)."""
MASK = re.compile(r".*(mask|keep|valid|flags?)\d*")
CONFIG = re.compile(r"(config|conf|cfg|args|opts?|options|params|hparams|settings)")
INTS = (
    (r".*(kernel|window|taps).*|ks", (3, 2)),
    (r".*stride.*", (2, 1)),
    (r".*(pad|dilation).*", (1, 0)),
    (r".*groups?.*", (2, 1)),
    (r".*heads?.*", (4, 2, 1)),
    (r".*(layers|blocks|depth|steps|iters|times).*", (2, 1)),
    (r".*(vocab|embeddings|classes|buckets|num_ids).*", (37,)),
    (r".*(out|hidden|inner|ff|mlp|rank|proj).*", (12, 8)),
    (r"k|top_?k|topk", (3, 2, 1)),
)
"""Name pattern of an integer parameter to values that are tried before sizes of the inputs."""
FLOATS = ((r".*eps.*", 1e-5), (r".*(drop|prob).*|p", 0.0), (r".*(theta|base).*", 10000.0), (r".*momentum.*", 0.1))
FLAG = re.compile(r"(is|use|has|with|do)_.*|causal|bias|affine|training|keepdim|inplace|normalize|reverse")
AXIS = re.compile(r"(dim|axis|dims|axes|start_dim|end_dim)\d?")
"""Parameters whose default is kept, because a kernel is written for one axis."""
TENSOR_TYPES = {"Long": "int64", "Int": "int64", "Bool": "bool", "Double": "float64"}
"""Prefix of a tensor annotation to its element type, as in LongTensor."""
KINDS = {bool: "bool", int: "int", float: "float", str: "str", torch.dtype: "dtype", torch.device: "device"}
UNSPECIFIC = (None, Parameter.empty, Any, object, list, tuple, dict)
"""Annotations that do not tell the kind of argument."""
Call = list[tuple[str, str]]
"""Arguments of a call: keyword (empty: positional) and text; `{path}` stands for a choice's text."""


@dataclass(frozen=True)
class Choice:
    """One possible argument of a parameter; in its text `<x.2>` is the third size of input `x`."""

    text: str
    inputs: tuple[TensorSpec, ...] = ()
    """The tensors in the text, which a generator draws."""
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    """The numbers and flags in the text, which a workload can change."""
    notes: tuple[str, ...] = ()


Reads = Mapping[str, Mapping[str, bool]]
"""Variable to the names that code reads from it, each with whether it is a key (`x["eps"]`, not `x.eps`)."""


class Choices:
    """The choices for every parameter of a call, and of the constructor before it."""

    def __init__(
        self,
        likes: Mapping[str, Sequence[TensorSpec]],
        values: Mapping[str, Any],
        attribute_names: Sequence[str] | None = None,
    ) -> None:
        """`likes`, `values`: path of a parameter to its `--like` options or its `--set` value;
        `attribute_names`: numbers that the kernel or program takes, so that they may become attributes; None (a
        Python function): any may. A path is `x` or `config.eps`."""
        self.likes, self.values, self.attribute_names = likes, values, attribute_names
        self.by_path: dict[str, list[Choice]] = {}
        """Path of a parameter to its choices, the likeliest first."""
        self.is_constructor = False
        """Whether parameters are a constructor's, where those without annotation are whole numbers."""
        self.imports: dict[str, None] = {}
        """Import statements that the source text of the arguments needs, in order."""
        self.used: set[str] = set()
        """Paths of `likes` and `values` that a parameter has."""
        self.notes: list[str] = []
        self.missing: dict[str, str] = {}
        """Path of each parameter without any choice, to its annotated kind (or empty)."""
        self.names: list[str] = []
        """Names of all parameters."""
        self.dims = dict.fromkeys(dim for specs in likes.values() for spec in specs for dim in spec.dims)
        """Names of all sizes."""

    def add_arguments(self, function: Any, *, bound: bool = False) -> Call:
        """Add the parameters of a function, or of a class's constructor. Returns the arguments of a call, as
        (keyword or empty, text). `bound`: skip the parameter `self`."""
        call: Call = []
        is_default_skipped = False
        reads = reads_of(function)
        for parameter in list(parameters(function))[1 if bound else 0 :]:
            name, is_list = parameter.name, parameter.kind is Parameter.VAR_POSITIONAL
            if parameter.kind is Parameter.VAR_KEYWORD or (is_list and name not in self.likes):
                continue
            self.names.append(name)
            text = self.add(name, parameter.annotation, parameter.default, reads, is_list=is_list)
            if text is None:  # Left at its default, so later arguments need keywords.
                is_default_skipped = True
            elif is_list:
                call.append(("", f"*{text}"))
            else:
                needs_keyword = is_default_skipped and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
                needs_keyword = needs_keyword or parameter.kind is Parameter.KEYWORD_ONLY
                call.append((name if needs_keyword else "", text))
        return call

    def add(self, path: str, annotation: Any, default: Any, reads: Reads, *, is_list: bool = False) -> str | None:
        """Add a parameter. Returns the source text of its argument, mostly `{path}`, in place of which a choice's
        text comes later; None: its default is used. `reads`: what the code reads; `is_list`: it is `*args`."""
        kind, detail, is_nullable = kind_of(annotation)
        name = path.rpartition(".")[2]
        if path in self.likes:
            self.used.add(path)
            return self._add_tensor(path, kind, detail, is_list=is_list)
        if path in self.values:  # A number or flag becomes an attribute, others a literal.
            self.used.add(path)
            value = self.values[path]
            if isinstance(value, bool | int | float):
                return self._add_choices(path, [self._attribute(path, value)])
            return repr(tuple(value)) if isinstance(value, list) and kind != "list" else repr(value)
        # A part of it is given: `config.eps` of `config`.
        has_given_part = any(other.startswith(f"{path}.") for other in (*self.likes, *self.values))
        if not has_given_part and default is not Parameter.empty:
            return self._add_default(path, kind, default)
        if not has_given_part and is_nullable:
            self.notes.append(f"{path} stays None")
            return "None"
        # No tensor: the code reads a key from it, or an attribute that tensors lack.
        is_object = any(is_key or not hasattr(torch.Tensor, part) for part, is_key in reads.get(name, {}).items())
        is_object = is_object or bool(CONFIG.fullmatch(name))
        if kind == "class" or has_given_part or (not kind and is_object):
            return self._add_object(path, detail if kind == "class" else None, reads)
        choices = self._value_choices(path, name, kind, detail)
        if not choices:
            self.missing[path] = kind
        return self._add_choices(path, choices)

    def _add_default(self, path: str, kind: str, default: Any) -> str | None:
        """Add a parameter with a default. A number or flag becomes an attribute, unless it names an axis, as `dim`
        does: kernels are written for one axis. Others, and what a kernel does not take, stay at their default: a
        note says so. Returns as `add`."""
        name = path.rpartition(".")[2]
        is_number = isinstance(default, bool | int | float) and not isinstance(default, enum.Enum)
        is_allowed = self.attribute_names is None or name in self.attribute_names
        if is_number and is_allowed and not AXIS.fullmatch(name):
            return self._add_choices(path, [self._attribute(path, default)])
        text = default.__name__ if isinstance(default, type) else repr(default)
        note = f"{path} stays at its default, {text[:40]}; --set {path}=VALUE changes it"
        if default is None and kind in ("", "tensor"):
            note = f"{path} stays None; --like {path}=N,M makes it a tensor"
        self.notes.append(note)
        return None

    def _add_tensor(self, path: str, kind: str, detail: Any, *, is_list: bool) -> str:
        """Add a parameter with `--like`: a tensor; several shapes, or its annotation, mean a list of them."""
        specs, name = self.likes[path], path.replace(".", "_")
        if is_list or kind == "tensors" or len(specs) > 1:
            return self._add_choices(path, [_tensor_list(name, specs)])
        # Values of `--set` may bound an index, too, as a vocabulary's size does.
        integers = [value for value in self.values.values() if isinstance(value, int) and value > 1]
        choices = tensor_choices(name, specs[0], detail, [*self.dims, *map(str, integers)])
        return self._add_choices(path, choices if kind else [*choices, _tensor_list(name, specs)])

    def _add_choices(self, path: str, choices: list[Choice]) -> str:
        """Set the choices of a parameter. Returns the placeholder for the chosen text."""
        self.by_path[path] = choices
        return "{" + path + "}"

    def _attribute(self, path: str, value: Scalar) -> Choice:
        """A choice that makes a value an attribute, so that a workload can change it. It is named as the
        parameter; `config_eps_` if another attribute, tensor or size has that name."""
        name = path.rpartition(".")[2]
        names = {tensor.replace(".", "_") for tensor in self.likes} | {*self.dims, *RESERVED_NAMES}
        names |= {name for choices in self.by_path.values() for choice in choices for name in choice.attributes}
        if name in names or keyword.iskeyword(name):
            name = f"{path.replace('.', '_')}_"
        return Choice(name, attributes={name: value})

    def _add_object(self, path: str, object_class: Any, reads: Reads) -> str:
        """Add a parameter that is an object, part by part. Returns an expression that makes it, or "".
        `object_class`: None if not known; then it is an object, or a dict, with what the code reads from it."""
        if object_class is not None:
            top_name = object_class.__qualname__.partition(".")[0]
            self.imports[f"from {object_class.__module__} import {top_name}"] = None
            if issubclass(object_class, enum.Enum):
                return f"{object_class.__qualname__}.{next(iter(object_class)).name}"
            arguments = []
            for part in parameters(object_class):
                text = self.add(f"{path}.{part.name}", part.annotation, part.default, reads)
                arguments += [] if text is None else [f"{part.name}={text}"]  # None: left at its default.
            return f"{object_class.__qualname__}({', '.join(arguments)})"
        part_reads = reads.get(path.rpartition(".")[2], {})
        path_prefix = f"{path}."
        options = [other for other in (*self.likes, *self.values) if other.startswith(path_prefix)]
        given_parts = sorted({other.removeprefix(path_prefix).partition(".")[0] for other in options})
        names = dict.fromkeys((*sorted(part_reads, key=part_reads.__getitem__), *given_parts))
        if not names:
            self.missing[path] = ""
            return ""
        texts = {name: self.add(f"{path}.{name}", None, Parameter.empty, {}) for name in names}
        hint = f"--set {path}.{next(iter(names))}=VALUE changes it"
        self.notes.append(f"{path} has {', '.join(names)}, as the code reads them; {hint}")
        if any(part_reads.values()) or not part_reads:
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in texts.items()) + "}"
        self.imports["from types import SimpleNamespace"] = None
        return f"SimpleNamespace({', '.join(f'{name}={text}' for name, text in texts.items())})"

    def _value_choices(self, path: str, name: str, kind: str, detail: Any) -> list[Choice]:
        """Choices of a value without a default, by kind and name; empty if none can be guessed.
        `detail`: the values of a literal."""
        if kind == "literal":
            return [Choice(repr(value)) for value in detail]
        if kind == "bool" or (not kind and FLAG.fullmatch(name)):
            return [self._attribute(path, value) for value in (False, True)]
        number = _first_match(FLOATS, name)
        if kind == "float" or (not kind and number is not None):
            return [self._attribute(path, 0.7 if number is None else number)]
        if kind in ("", "int", "ints"):
            return self._integer_choices(path, name, kind)
        return {"dtype": [Choice("torch.float32")], "device": [Choice('"cpu"')]}.get(kind, [])

    def _integer_choices(self, path: str, name: str, kind: str) -> list[Choice]:
        """Choices of a whole number or a tuple: usual values for its name, and sizes of the inputs.
        Sizes with the parameter's name come first, then those of the last dimensions. `kind`: `ints` for a
        tuple, `int`, or empty if not annotated."""
        constants = _first_match(INTS, name) or ()
        lone_specs = {path: specs[0] for path, specs in self.likes.items() if len(specs) == 1}
        dims_by_tensor = {path.replace(".", "_"): spec.dims for path, spec in lone_specs.items()}
        if kind == "ints":
            last_sizes = [Choice(f"(<{tensor}.{len(dims) - 1}>,)") for tensor, dims in dims_by_tensor.items()]
            return [*last_sizes, *(Choice(repr((constant,) * rank)) for constant in constants for rank in (2, 1))]
        size_texts: dict[str, str] = {}  # Dimension to `<x.2>`: the first tensor that has it, the last axis.
        for tensor, dims in dims_by_tensor.items():
            for axis in reversed(range(len(dims))):
                size_texts.setdefault(dims[axis], f"<{tensor}.{axis}>")
        same_name = [dim for dim in size_texts if dim.lower() == name.lower()]
        if not kind and not (self.is_constructor or "." in path or constants or same_name):
            return []
        numbers = [self._attribute(path, value) for value in dict.fromkeys((*constants, 4, 2, 1))]
        leading_count = 0 if same_name else len(constants)  # Numbers that are likelier than sizes.
        sizes = [Choice(size_texts[dim]) for dim in dict.fromkeys((*same_name, *size_texts))]
        return [*numbers[:leading_count], *sizes, *numbers[leading_count:]]


def tensor_choices(name: str, like: TensorSpec, annotated_dtype: Any, bounds: Iterable[str]) -> list[Choice]:
    """Choices of a tensor's values, likeliest first, by given or annotated type, else by its name.
    `like`: its `--like` option; `bounds`: sizes and numbers that may bound the values of an index."""
    dtype = like.dtype or (annotated_dtype if isinstance(annotated_dtype, str) else "")
    option, lower_name = f"--like {like.name}={','.join(like.dims)}:float32 for others", name.lower()

    def choices_of(kind: str, *values: str, highs: Sequence[str] = ("",), label: str = "") -> list[Choice]:
        """A choice for each kind of values and each bound. `label`: what they are, for a note."""
        notes = (f"{name}: {label}, as its name or use says; {option}",) if label and not dtype else ()
        spec = TensorSpec(name=name, dims=like.dims, dtype=kind)
        pairs = [{"values": value, "high": high} for value in values for high in highs]
        return [Choice(name, (spec.model_copy(update=pair),), notes=notes) for pair in pairs]

    is_whole = dtype.strip("u").startswith("int")
    value_orders = [values for pattern, values in ORDERS if pattern.fullmatch(lower_name)]
    # Offsets and slots are seldom bounded by a size of their own.
    likely_highs = sorted(bounds, key=lambda bound: bool(value_orders) and bound in like.dims)
    highs = [like.high] if like.high else likely_highs
    index = choices_of(dtype if is_whole else "int64", *value_orders, "index", highs=highs, label="whole numbers")
    is_index = bool(value_orders or INDEX.fullmatch(lower_name) or like.high)
    masks = choices_of("bool", "mask", "mask_out", label="truth values")
    normal = choices_of(dtype, "normal", "positive")
    if is_whole:
        return [*index, *choices_of(dtype, "whole")] if is_index else [*choices_of(dtype, "whole"), *index]
    if dtype:
        return masks if dtype == "bool" else normal
    if is_index:
        return [*index, *normal]
    return [*masks, *normal, *index] if MASK.fullmatch(lower_name) else [*normal, *index, *masks]


def _tensor_list(name: str, likes: Sequence[TensorSpec]) -> Choice:
    """The choice of a list of tensors: one for each shape, or `LIST_LENGTH` tensors of a single shape."""
    specs = [*likes] if len(likes) > 1 else [*likes] * LIST_LENGTH
    likeliest = [tensor_choices(f"{name}_{number}", spec, "", ())[0] for number, spec in enumerate(specs)]
    inputs = tuple(choice.inputs[0] for choice in likeliest)
    names = ", ".join(tensor.name for tensor in inputs)
    return Choice(f"[{names}]", inputs, notes=(f"{name}: a list of {len(inputs)} tensors",))


def _first_match(table: Sequence[tuple[str, Any]], name: str) -> Any:
    """The table's value for the first pattern that matches a name; None without a match."""
    return next((value for pattern, value in table if re.fullmatch(pattern, name.lower())), None)


def parameters(function: Any) -> Iterator[Parameter]:
    """The parameters of a function or of a class's constructor, with resolved annotations.
    Raises ValueError for a function written in C without a signature."""
    schema = getattr(function, "schema", getattr(function, "_schema", None))
    if isinstance(schema, torch._C.FunctionSchema):  # TorchScript, or an operator of torch.ops.
        for argument in schema.arguments:
            parameter_kind = Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
            default = argument.default_value if argument.has_default_value() else Parameter.empty
            yield Parameter(argument.name, parameter_kind, default=default, annotation=str(argument.type))
        return
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except Exception:  # An annotation may use names that only a type checker imports.
        hints = {}
    if inspect.isclass(function):
        hints = {**getattr(function, "__annotations__", {}), **hints}
    for parameter in signature.parameters.values():
        yield parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))


def kind_of(annotation: Any) -> tuple[str, Any, bool]:
    """Parse an annotation: kind (empty: unknown), the kind's details, whether None is allowed.
    Details: of `tensor` its element type, of `literal` the values, of `class` the class; else None."""
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        first = next(argument for argument in arguments if argument is not type(None))
        return (*kind_of(first)[:2], type(None) in arguments)
    if origin is typing.Annotated:
        return kind_of(arguments[0])
    if origin is typing.Literal:
        return "literal", arguments, None in arguments
    if origin is not None and arguments:  # A list or tuple: by its last element type.
        kind, detail, _ = kind_of(next(item for item in reversed(arguments) if item is not Ellipsis))
        return {"tensor": "tensors", "int": "ints"}.get(kind, "other"), detail, False
    if annotation in UNSPECIFIC:
        return "", None, False
    is_type = isinstance(annotation, type)
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if "Tensor" in text or (is_type and issubclass(annotation, torch.Tensor)):
        dtypes = (dtype for prefix, dtype in TENSOR_TYPES.items() if text.startswith(prefix))
        return "tensor", next(dtypes, ""), False
    kind = KINDS.get(annotation) or (text if text in KINDS.values() else "")
    return ("class", annotation, False) if is_type and not kind else (kind, None, False)


def reads_of(owner: Any) -> Reads:
    """What the code of a function or class reads from its variables, as `eps` in `config.eps`: variable to part,
    to whether it is read as a key, `config["eps"]`. It shows what an object needs. Empty without source."""
    reads: dict[str, dict[str, bool]] = {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return reads
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Subscript):
            continue
        value = node.value
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
            name = value.attr  # self.config.eps counts as config.eps.
        elif isinstance(value, ast.Name):
            name = value.id
        else:
            continue
        is_key_by_name = reads.setdefault(name, {})
        if isinstance(node, ast.Attribute):
            is_key_by_name.setdefault(node.attr, False)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            is_key_by_name[node.slice.value] = True
    return reads

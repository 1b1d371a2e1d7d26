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

TAKEN = ("dtype", "values", "weight", "weights", "seed", "device", "drawn")
"""Names reserved by workloads and generators."""
LIST = 3
"""Length of a list of tensors for which the user gives one shape."""
INDEX = re.compile(
    r"(.*_)?(idx|ids?|index|indices|indexes|pos|positions?|labels?|tokens?|len|lengths?|lens|slots?)\d?"
)
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
UNSAID = (None, Parameter.empty, Any, object, list, tuple, dict)
"""Annotations that do not tell the kind of argument."""
Scalar = bool | int | float
Call = list[tuple[str, str]]
"""Arguments of a call: keyword (empty: positional) and text; `{path}` is an option's text."""


@dataclass(frozen=True)
class Drawn:
    """One input tensor, and the kind of values that a generator draws for it."""

    name: str
    dims: tuple[str, ...]
    dtype: str = ""
    """Element type; empty: that of the workload."""
    values: str = "normal"
    """`normal`, `positive`, `index`, `distinct`, `whole`, `sorted`, `mask` or `mask_out`."""
    high: str = ""
    """For `index`, `distinct` and `sorted`: a size or number that bounds the values."""


@dataclass(frozen=True)
class Option:
    """One possible argument of a parameter; in its text `<x.2>` is the third size of input `x`."""

    text: str
    inputs: tuple[Drawn, ...] = ()
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Slots:
    """The options of every parameter of a call, and of the constructor before it."""

    def __init__(
        self, likes: Mapping[str, Any], values: Mapping[str, Any], attributes: Sequence[str] | None = None
    ) -> None:
        """`likes`: path to shapes, each with `dims`, `dtype` and `high`; `values`: path to the `--set` value;
        `attributes`: the names that a kernel or program takes (None: any). A path is `x` or `config.eps`."""
        self.likes, self.values, self.taken = likes, values, attributes
        self.options: dict[str, list[Option]] = {}
        self.constructing = False
        """Whether parameters are a constructor's, where those without annotation are whole numbers."""
        self.imports: dict[str, None] = {}
        self.used: set[str] = set()
        self.notes: list[str] = []
        self.missing: dict[str, str] = {}
        """Path of each parameter without any option, to its annotated kind (or empty)."""
        self.names: list[str] = []
        """Names of all parameters."""
        self.dims = {dim for shapes in likes.values() for shape in shapes for dim in shape["dims"]}

    def arguments(self, function: Any, owner: Any = None, *, bound: bool = False) -> Call:
        """The arguments to call a function with; `bound`: skip the first parameter, `self`."""
        call: Call = []
        by_name, reads = False, reads_of(owner or function)
        for parameter in list(parameters(function))[1 if bound else 0 :]:
            name, is_list = parameter.name, parameter.kind is Parameter.VAR_POSITIONAL
            if parameter.kind is Parameter.VAR_KEYWORD or (is_list and name not in self.likes):
                continue
            self.names.append(name)
            text = self.text(name, parameter.annotation, parameter.default, reads, several=is_list)
            if text is None:  # Left at its default, so later arguments need keywords.
                by_name = True
            elif is_list:
                call.append(("", f"*{text}"))
            else:
                is_named = by_name and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
                call.append((name if is_named or parameter.kind is Parameter.KEYWORD_ONLY else "", text))
        return call

    def text(
        self, path: str, annotation: Any, default: Any, reads: Mapping[str, Any], *, several: bool = False
    ) -> str | None:
        """The text to pass for a parameter, mostly a slot `{path}`; None: its default is used."""
        kind, inner, nullable = kind_of(annotation)
        name = path.rpartition(".")[2]
        is_given = any(other.startswith(f"{path}.") for other in (*self.likes, *self.values))
        if path in self.likes:  # A tensor; several shapes mean a list of tensors.
            self.used.add(path)
            shapes, flat = self.likes[path], path.replace(".", "_")
            if several or kind == "tensors" or len(shapes) > 1:
                return self._slot(path, [_listed(flat, shapes)])
            sizes = dict.fromkeys(dim for likes in self.likes.values() for like in likes for dim in like["dims"])
            numbers = [n for n in self.values.values() if isinstance(n, int) and not isinstance(n, bool) and n > 1]
            options = tensor_options(flat, shapes[0], inner, [*sizes, *map(str, numbers)])
            return self._slot(path, options if kind else [*options, _listed(flat, shapes)])
        if path in self.values:  # A number or flag becomes an attribute, others a literal.
            self.used.add(path)
            value = self.values[path]
            if isinstance(value, bool | int | float):
                return self._slot(path, [self._attribute(path, value)])
            return repr(tuple(value)) if isinstance(value, list) and kind != "list" else repr(value)
        if not is_given and default is not Parameter.empty:
            is_number = isinstance(default, bool | int | float) and not isinstance(default, enum.Enum)
            if is_number and not AXIS.fullmatch(name) and (self.taken is None or name in self.taken):
                return self._slot(path, [self._attribute(path, default)])
            shown = default.__name__ if isinstance(default, type) else repr(default)
            note = f"{path} stays at its default, {shown[:40]}; --set {path}=VALUE changes it"
            is_tensor = default is None and kind in ("", "tensor")
            self.notes.append(f"{path} stays None; --like {path}=N,M makes it a tensor" if is_tensor else note)
            return None
        if not is_given and nullable:
            self.notes.append(f"{path} stays None")
            return "None"
        attributes, keys = reads.get(name, ((), ()))
        # Its name is that of a configuration, or the code reads an attribute that no tensor has.
        is_object = CONFIG.fullmatch(name) or keys or any(not hasattr(torch.Tensor, word) for word in attributes)
        if kind == "class" or is_given or (not kind and is_object):
            return self._object(path, inner if kind == "class" else None, reads)
        options = self._options(path, name, kind, inner)
        if not options:
            self.missing[path] = kind
        return self._slot(path, options)

    def _slot(self, path: str, options: list[Option]) -> str:
        self.options[path] = options
        return "{" + path + "}"

    def _attribute(self, path: str, value: Scalar) -> Option:
        """An option that makes a value an attribute, so that a workload can change it."""
        name = path.rpartition(".")[2]
        known = {name for options in self.options.values() for option in options for name in option.attributes}
        flat = {tensor.replace(".", "_") for tensor in self.likes}
        if name in {*known, *flat, *self.dims, *TAKEN} or keyword.iskeyword(name):
            name = f"{path.replace('.', '_')}_"
        return Option(name, attributes={name: value})

    def _object(self, path: str, kind: Any, reads: Mapping[str, Any]) -> str:
        """An expression for an object: of class `kind`, or with the attributes that the code reads."""
        start = f"{path}."

        def keywords(texts: Mapping[str, str | None]) -> str:
            return ", ".join(f"{name}={text}" for name, text in texts.items() if text is not None)

        below = [other.removeprefix(start) for other in (*self.likes, *self.values) if other.startswith(start)]
        attributes, keys = reads.get(path.rpartition(".")[2], ((), ()))
        names = dict.fromkeys((*attributes, *keys, *sorted({name.partition(".")[0] for name in below})))
        if kind is not None:
            top = kind.__qualname__.partition(".")[0]
            self.imports[f"from {kind.__module__} import {top}"] = None
            if issubclass(kind, enum.Enum):
                return f"{kind.__qualname__}.{next(iter(kind)).name}"
            texts = {
                field.name: self.text(f"{path}.{field.name}", field.annotation, field.default, reads)
                for field in parameters(kind)
            }
            return f"{kind.__qualname__}({keywords(texts)})"
        if not names:
            self.missing[path] = ""
            return ""
        texts = {name: self.text(f"{path}.{name}", None, Parameter.empty, {}) for name in names}
        change = f"--set {path}.{next(iter(names))}=VALUE changes it"
        self.notes.append(f"{path} has {', '.join(names)}, as the code reads them; {change}")
        if keys or not attributes:
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in texts.items()) + "}"
        self.imports["from types import SimpleNamespace"] = None
        return f"SimpleNamespace({keywords(texts)})"

    def _options(self, path: str, name: str, kind: str, inner: Any) -> list[Option]:
        """Options of a value without a default, by kind and name; empty if none can be guessed."""
        if kind == "literal":
            return [Option(repr(value)) for value in inner]
        if kind == "bool" or (not kind and FLAG.fullmatch(name)):
            return [self._attribute(path, value) for value in (False, True)]
        number = _by_name(FLOATS, name)
        if kind == "float" or (not kind and number is not None):
            return [self._attribute(path, 0.7 if number is None else number)]
        if kind in ("", "int", "ints"):
            return self._whole(path, name, kind)
        return {"dtype": [Option("torch.float32")], "device": [Option('"cpu"')]}.get(kind, [])

    def _whole(self, path: str, name: str, kind: str) -> list[Option]:
        """Options of a whole number or a tuple: usual values for its name, and sizes of the inputs.

        Sizes with the parameter's name come first, then those of the last dimensions.
        """
        constants = _by_name(INTS, name) or ()
        single = {
            path.replace(".", "_"): shapes[0]["dims"] for path, shapes in self.likes.items() if len(shapes) == 1
        }
        if kind == "ints":
            last = [Option(f"(<{tensor}.{len(dims) - 1}>,)") for tensor, dims in single.items()]
            return [*last, *(Option(repr((constant,) * n)) for constant in constants for n in (2, 1))]
        sizes: dict[str, str] = {}
        for tensor, dims in single.items():
            for axis in reversed(range(len(dims))):
                sizes.setdefault(dims[axis], f"<{tensor}.{axis}>")
        same = [dim for dim in sizes if dim.lower() == name.lower()]
        if not kind and not (self.constructing or "." in path or constants or same):
            return []
        numbers = [self._attribute(path, value) for value in dict.fromkeys((*constants, 4, 2, 1))]
        likely = 0 if same else len(constants)
        ordered = [sizes[dim] for dim in (*same, *(dim for dim in sizes if dim not in same))]
        return [*numbers[:likely], *map(Option, ordered), *numbers[likely:]]


def tensor_options(name: str, like: Mapping[str, Any], hint: Any, highs: Iterable[str]) -> list[Option]:
    """Options of a tensor by given or annotated type (`hint`), else name; `highs`: index bounds."""
    dims, dtype = tuple(like["dims"]), like["dtype"] or (hint if isinstance(hint, str) else "")
    shown, lower = f"--like {like.get('path', name)}={','.join(dims)}:float32 for others", name.lower()

    def options(kind: str, *fills: str, ends: Sequence[str] = ("",), what: str = "") -> list[Option]:
        notes = (f"{name}: {what}, as its name or use says; {shown}",) if what and not dtype else ()
        return [Option(name, (Drawn(name, dims, kind, fill, end),), notes=notes) for fill in fills for end in ends]

    is_whole = dtype.strip("u").startswith("int")
    special = [values for pattern, values in ORDERS if pattern.fullmatch(lower)]
    ends = [like["high"]] if like["high"] else sorted(highs, key=lambda high: bool(special) and high in dims)
    index = options(dtype if is_whole else "int64", *special, "index", ends=ends, what="whole numbers")
    is_index = bool(special or INDEX.fullmatch(lower) or like["high"])
    masks, normal = options("bool", "mask", "mask_out", what="truth values"), options(dtype, "normal", "positive")
    if is_whole:
        return [*index, *options(dtype, "whole")] if is_index else [*options(dtype, "whole"), *index]
    if dtype:
        return masks if dtype == "bool" else normal
    if is_index:
        return [*index, *normal]
    return [*masks, *normal, *index] if MASK.fullmatch(lower) else [*normal, *index, *masks]


def _listed(flat: str, shapes: Sequence[Mapping[str, Any]]) -> Option:
    """The option of a list of tensors: one for each shape, or LIST tensors of a single shape."""
    several = [shapes[n % len(shapes)] for n in range(max(len(shapes), LIST if len(shapes) == 1 else 0))]
    inputs = tuple(tensor_options(f"{flat}_{n}", shape, "", ())[0].inputs[0] for n, shape in enumerate(several))
    listed = ", ".join(tensor.name for tensor in inputs)
    return Option(f"[{listed}]", inputs, notes=(f"{flat}: a list of {len(inputs)} tensors",))


def _by_name(table: Sequence[tuple[str, Any]], name: str) -> Any:
    """The table's value for the first pattern that matches a name; None without a match."""
    return next((value for pattern, value in table if re.fullmatch(pattern, name.lower())), None)


def parameters(function: Any) -> Iterator[Parameter]:
    """The parameters of a function or of a class's constructor, with resolved annotations.

    Raises ValueError for a function written in C without a signature.
    """
    schema = getattr(function, "schema", getattr(function, "_schema", None))
    if isinstance(schema, torch._C.FunctionSchema):  # TorchScript, or an operator of torch.ops.
        for argument in schema.arguments:
            how = Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD
            default = argument.default_value if argument.has_default_value() else Parameter.empty
            yield Parameter(argument.name, how, default=default, annotation=str(argument.type))
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
    """Parse an annotation: kind (empty: unknown), the kind's details, whether None is allowed."""
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        first = next(argument for argument in arguments if argument is not type(None))
        return (*kind_of(first)[:2], type(None) in arguments)
    if origin is typing.Annotated:
        return kind_of(arguments[0])
    if origin is typing.Literal:
        return "literal", arguments, None in arguments
    if origin is not None and arguments:
        kind, inner, _ = kind_of(next(item for item in reversed(arguments) if item is not Ellipsis))
        return {"tensor": "tensors", "int": "ints"}.get(kind, "other"), inner, False
    if annotation in UNSAID:
        return "", None, False
    is_type = isinstance(annotation, type)
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if "Tensor" in text or (is_type and issubclass(annotation, torch.Tensor)):
        return "tensor", next((kind for word, kind in TENSOR_TYPES.items() if text.startswith(word)), ""), False
    kind = KINDS.get(annotation) or (text if text in KINDS.values() else "")
    return ("class", annotation, False) if is_type and not kind else (kind, None, False)


def reads_of(owner: Any) -> dict[str, Any]:
    """Name to the attributes and keys that the code reads from it, as `eps` in `config.eps`."""
    reads: dict[str, Any] = {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return reads
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Subscript):
            continue
        value = node.value
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name) and value.value.id == "self":
            name = value.attr
        elif isinstance(value, ast.Name):
            name = value.id
        else:
            continue
        attributes, keys = reads.setdefault(name, ({}, {}))
        if isinstance(node, ast.Attribute):
            attributes[node.attr] = None
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            keys[node.slice.value] = None
    return reads

"""Possible arguments of a user's function: a tensor, a size, a value, or an object made of these.

`loop init` reads annotations, defaults and names. It tries several possibilities, the likeliest
first. It runs in a separate process, because it imports the user's module.
"""

import ast
import enum
import inspect
import keyword
import re
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

import torch

from loop.starting.model import RESERVED_NAMES, Scalar, TensorSpec

LIST_LENGTH = 3  # Length of a list of tensors.
INDEX_WORDS = "idx|ids?|index(es)?|indices|pos|positions?|labels?|tokens?|len(gth)?s?|slots?"
INDEX = re.compile(rf"(.*_)?({INDEX_WORDS})\d?")
OFFSETS = re.compile(r".*(cu_seqlens?|indptr|offsets|crow\w*|row_?ptrs?|splits)")
"""Names of index tensors with sorted values."""
MASK = re.compile(r".*(mask|keep|valid|flags?)\d*")
CONFIG = re.compile(r"(config|conf|cfg|args|opts?|options|params|hparams|settings)")
INTS = (
    ("kernel|window|taps|^ks$", (3, 2)),
    ("stride", (2, 1)),
    ("pad|dilation", (1, 0)),
    ("group", (2, 1)),
    ("head", (4, 2, 1)),
    ("layers|blocks|depth|steps|iters|times", (2, 1)),
    ("vocab|embeddings|classes|buckets|num_ids", (37,)),
    ("out|hidden|inner|ff|mlp|rank|proj", (12, 8)),
    ("^(k|top_?k)$", (3, 2, 1)),
)
"""Pattern in an integer parameter's name to values that are tried before sizes of the inputs."""
FLOATS = (("eps", 1e-5), ("drop|prob|^p$", 0.0), ("theta|base", 10000.0), ("momentum", 0.1))
FLAG = r"(is|use|has|with|do)_.*|causal|bias|affine|training|keepdim|inplace|normalize|reverse"
AXIS = re.compile(r"(dim|axis|dims|axes|start_dim|end_dim)\d?")
"""Parameters whose default is kept, because a kernel is written for one axis."""
KINDS = {bool: "bool", int: "int", float: "float", str: "str"}
UNSPECIFIC = (None, Parameter.empty, Any, object, list, tuple, dict)
"""Annotations that do not tell the kind of argument."""
Call = list[tuple[str, str]]
"""Arguments of a call: keyword (empty: positional) and text; `{path}`: the text of its choice."""
Reads = Mapping[str, Mapping[str, bool]]
"""Variable to what code reads from it, each with whether it is a key (`x["eps"]`, not `x.eps`)."""


@dataclass(frozen=True)
class Choice:
    """One possible argument of a parameter; in its text `<x.2>` is the third size of input `x`."""

    text: str
    inputs: tuple[TensorSpec, ...] = ()  # The tensors in the text, which a generator draws.
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    """The numbers and flags in the text, which a workload can change."""
    notes: tuple[str, ...] = ()


class Choices:
    """The choices for every parameter of a call, and of the constructor before it."""

    def __init__(
        self, likes: dict[str, TensorSpec], values: dict[str, Any], kernel_numbers: list[str] | None
    ) -> None:
        """`likes`, `values`: path of a parameter (`x`, `config.eps`) to its `--like` or `--set`;
        `kernel_numbers`: those that a kernel takes: only they become attributes; None: any."""
        self.likes, self.values, self.kernel_numbers = likes, values, kernel_numbers
        self.by_path: dict[str, list[Choice]] = {}  # Of each parameter, the likeliest first.
        self.is_constructor = False  # If so, parameters without annotation are whole numbers.
        self.imports: dict[str, None] = {}  # Imports that the arguments' source text needs.
        self.used: set[str] = set()  # Paths of `likes` and `values` that a parameter has.
        self.notes: list[str] = []
        self.missing: list[str] = []  # Paths of the parameters without any choice.
        self.names: list[str] = []  # Names of all parameters.
        self.dims = list(dict.fromkeys(dim for like in likes.values() for dim in like.dims))
        """Names of all sizes."""
        self.reserved = {*RESERVED_NAMES}  # Names that no attribute may have.

    def add_arguments(self, function: Any, *, bound: bool = False) -> Call:
        """Add the parameters of a function, or of a class's constructor. Returns the arguments of a
        call. `bound`: skip the parameter `self`. A function without a signature takes tensors by
        place, as `likes` has them, then `values` by name."""
        call: Call = []
        reads = reads_of(function)
        for parameter in parameters(function)[1 if bound else 0 :]:
            if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                continue
            self.names.append(parameter.name)
            text = self.add(parameter.name, parameter.annotation, parameter.default, reads)
            if text is not None:
                is_positional = parameter.kind is Parameter.POSITIONAL_ONLY
                call.append(("" if is_positional else parameter.name, text))
        if not (bound or self.is_constructor or self.names):
            for path in (*self.likes, *self.values):
                text = self.add(path, None, Parameter.empty, {}) or ""
                call.append(("" if path in self.likes else path, text))
        return call

    def add(self, path: str, annotation: Any, default: Any, reads: Reads) -> str | None:
        """Add a parameter. Returns its argument's source text, mostly `{path}`, which a choice's
        text replaces later; None: its default. `reads`: what the code reads from its variables."""
        kind, owner = kind_of(annotation)
        name = path.rpartition(".")[2]
        # Parts of it that options give: `eps` of `config`, by `config.eps`.
        options = [other for other in (*self.likes, *self.values) if other.startswith(f"{path}.")]
        given_parts = [option.removeprefix(f"{path}.").partition(".")[0] for option in options]
        # No tensor: the code reads a key from it, or an attribute that tensors lack.
        parts = reads.get(name, {})
        is_object = any(is_key or not hasattr(torch.Tensor, part) for part, is_key in parts.items())
        if path in self.likes:
            self.used.add(path)
            self.by_path[path] = self._tensor_choices(path, kind)
        elif path in self.values or (not given_parts and default is not Parameter.empty):
            return self._add_value(path, kind, default)
        elif kind == "class":
            return self._add_class(path, owner, reads)
        elif given_parts or (not kind and (is_object or CONFIG.fullmatch(name))):
            return self._add_object(path, parts, given_parts)
        else:
            self.by_path[path] = self._value_choices(path, kind)
            self.missing += [] if self.by_path[path] else [path]
        return "{" + path + "}"

    def _add_value(self, path: str, kind: str, default: Any) -> str | None:
        """Add a parameter with a `--set` value, or a default. Numbers and flags become attributes,
        which a workload can change; other `--set` values literals. What names an axis, or what a
        kernel does not take, stays at its default, with a note. Returns as `add`."""
        is_set = path in self.values
        value, name = self.values.get(path, default), path.rpartition(".")[2]
        self.used |= {path} if is_set else set()
        is_number = isinstance(value, bool | int | float) and not isinstance(value, enum.Enum)
        is_taken = self.kernel_numbers is None or name in self.kernel_numbers
        if is_number and (is_set or (is_taken and not AXIS.fullmatch(name))):
            self.by_path[path] = [self._attribute(path, value)]
            return "{" + path + "}"
        if is_set:
            return repr(tuple(value) if isinstance(value, list) else value)
        text = default.__name__ if isinstance(default, type) else repr(default)
        note = f"{path} stays at its default, {text[:40]}; --set {path}=VALUE changes it"
        if default is None and kind in ("", "tensor"):
            note = f"{path} stays None; --like {path}=N,M makes it a tensor"
        self.notes.append(note)
        return None

    def _attribute(self, path: str, value: Scalar) -> Choice:
        """A choice that makes a value an attribute, which a workload can change. It is named as the
        parameter; `config_eps_` if another attribute, tensor or size has that name."""
        name = path.rpartition(".")[2]
        names = {tensor.replace(".", "_") for tensor in self.likes} | {*self.dims, *self.reserved}
        for choices in self.by_path.values():
            for choice in choices:
                names |= {*choice.attributes}
        if name in names or keyword.iskeyword(name):
            name = f"{path.replace('.', '_')}_"
        return Choice(name, attributes={name: value})

    def _add_class(self, path: str, annotation: Any, reads: Reads) -> str:
        """Add a parameter of a class, and its import. Returns a call of it, or an enum's member."""
        name = annotation.__qualname__
        self.imports[f"from {annotation.__module__} import {name.partition('.')[0]}"] = None
        if issubclass(annotation, enum.Enum):
            return f"{name}.{next(iter(annotation)).name}"
        arguments = []
        for part in parameters(annotation):
            text = self.add(f"{path}.{part.name}", part.annotation, part.default, reads)
            arguments += [] if text is None else [f"{part.name}={text}"]  # None: its default.
        return f"{name}({', '.join(arguments)})"

    def _add_object(self, path: str, parts: Mapping[str, bool], given_parts: Sequence[str]) -> str:
        """Add a parameter of unknown class, as an object or dict. `parts`: what the code reads from
        it, as in `Reads`; `given_parts`: by options. Returns its text; empty if that is unknown."""
        names = dict.fromkeys((*sorted(parts, key=parts.__getitem__), *sorted(given_parts)))
        if not names:
            self.missing.append(path)
            return ""
        texts = {name: self.add(f"{path}.{name}", None, Parameter.empty, {}) for name in names}
        hint = f"--set {path}.{next(iter(names))}=VALUE changes it"
        self.notes.append(f"{path} has {', '.join(names)}, as the code reads them; {hint}")
        if any(parts.values()) or not parts:
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in texts.items()) + "}"
        self.imports["from types import SimpleNamespace"] = None
        return f"SimpleNamespace({', '.join(f'{name}={text}' for name, text in texts.items())})"

    def _value_choices(self, path: str, kind: str) -> list[Choice]:
        """Choices of a value without a default, by kind and name; empty if none can be guessed.
        Those of a whole number, or a tuple of them, are usual values for its name, and sizes of the
        inputs: first those of the parameter's name, then those of the last dimensions."""
        name = path.rpartition(".")[2]
        lower_name = name.lower()
        if kind == "bool" or (not kind and re.fullmatch(FLAG, name)):
            return [self._attribute(path, value) for value in (False, True)]
        number = next((value for pattern, value in FLOATS if re.search(pattern, lower_name)), None)
        if kind == "float" or (not kind and number is not None):
            return [self._attribute(path, 0.7 if number is None else number)]
        constants = next((values for pattern, values in INTS if re.search(pattern, lower_name)), ())
        size_texts: dict[str, str] = {}  # Dimension to `<x.2>`: its first tensor, the last axis.
        last_sizes = []
        for tensor, like in self.likes.items():
            tensor = tensor.replace(".", "_")
            last_sizes.append(Choice(f"(<{tensor}.{len(like.dims) - 1}>,)"))
            for axis in reversed(range(len(like.dims))):
                size_texts.setdefault(like.dims[axis], f"<{tensor}.{axis}>")
        if kind == "ints":
            tuples = [(constant,) * rank for constant in constants for rank in (2, 1)]
            return [*last_sizes, *(Choice(repr(values)) for values in tuples)]
        same_name = [dim for dim in size_texts if dim.lower() == lower_name]
        is_integer = self.is_constructor or "." in path or constants or same_name
        if kind != "int" and (kind or not is_integer):
            return []
        numbers = [self._attribute(path, value) for value in dict.fromkeys((*constants, 4, 2, 1))]
        leading_count = 0 if same_name else len(constants)  # Numbers that are likelier than sizes.
        sizes = [Choice(size_texts[dim]) for dim in dict.fromkeys((*same_name, *size_texts))]
        return [*numbers[:leading_count], *sizes, *numbers[leading_count:]]

    def _tensor_choices(self, path: str, kind: str) -> list[Choice]:
        """Choices of a tensor's values, likeliest first, by the type of its `--like` option, else
        by its name. A parameter of the kind `tensors`, or of none, may also be a list of them."""
        like, name = self.likes[path], path.replace(".", "_")
        # Offsets are seldom bounded by a size of their own; others by any, or by a number.
        is_sorted = bool(OFFSETS.fullmatch(name.lower()))
        highs = sorted(self.dims, key=lambda dim: is_sorted and dim in like.dims)
        highs += [str(v) for v in self.values.values() if isinstance(v, int) and v > 1]
        highs = [like.high] if like.high else highs
        # Each draw: element type, kind of values and bound, as in `TensorSpec`.
        is_whole = like.dtype.strip("u").startswith("int")
        whole_type = like.dtype if is_whole else "int64"
        ordered = [(whole_type, "sorted", high) for high in highs]
        bounded = [(whole_type, "index", high) for high in highs]
        index = [*ordered, *bounded] if is_sorted else bounded
        masks = [("bool", "mask", ""), ("bool", "mask_out", "")]
        normal = [(like.dtype, "normal", ""), (like.dtype, "positive", "")]
        is_index = bool(is_sorted or INDEX.fullmatch(name.lower()) or like.high)
        if is_whole:
            whole = [(like.dtype, "whole", "")]
            draws = [*index, *whole, *ordered] if is_index else [*whole, *index, *ordered]
        elif like.dtype:
            draws = masks if like.dtype == "bool" else normal
        elif is_index:
            draws = [*index, *normal]
        else:
            is_mask = MASK.fullmatch(name.lower())
            draws = [*masks, *normal, *index] if is_mask else [*normal, *index, *masks]
        choices = []
        for dtype, values, high in draws:
            notes: tuple[str, ...] = ()
            if not like.dtype and dtype:
                label = "truth values" if dtype == "bool" else "whole numbers"
                option = f"--like {path}={','.join(like.dims)}:float32 for others"
                notes = (f"{name}: {label}, as its name or use says; {option}",)
            spec = TensorSpec(name=name, dims=like.dims, dtype=dtype, values=values, high=high)
            choices.append(Choice(name, (spec,), notes=notes))
        names = [f"{name}_{number}" for number in range(LIST_LENGTH)]
        inputs = tuple(choices[0].inputs[0].model_copy(update={"name": name}) for name in names)
        note = f"{name}: a list of {LIST_LENGTH} tensors"
        listed = Choice(f"[{', '.join(names)}]", inputs, notes=(note,))
        return [listed] if kind == "tensors" else choices if kind else [*choices, listed]


def parameters(function: Any) -> list[Parameter]:
    """The parameters of a function or class, with resolved annotations; empty without signature."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return []
    try:
        hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except Exception:  # An annotation may use names that only a type checker imports.
        hints = {}
    if inspect.isclass(function):
        hints = {**getattr(function, "__annotations__", {}), **hints}
    unresolved = signature.parameters.values()
    return [each.replace(annotation=hints.get(each.name, each.annotation)) for each in unresolved]


def kind_of(annotation: Any) -> tuple[str, Any]:
    """Kind of an annotation, and the class if the kind is `class`. Others: `tensor`, `bool`, `int`,
    `float`, `str`; `tensors`, `ints`: lists or tuples of them; `other`; empty if not known."""
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return kind_of(next(argument for argument in arguments if argument is not type(None)))
    if origin is not None and arguments:  # A list or tuple: by its last element type.
        kind, _ = kind_of([argument for argument in arguments if argument is not Ellipsis][-1])
        return {"tensor": "tensors", "int": "ints"}.get(kind, "other"), None
    if annotation in UNSPECIFIC:
        return "", None
    text = getattr(annotation, "__name__", str(annotation))
    if "Tensor" in text or (isinstance(annotation, type) and issubclass(annotation, torch.Tensor)):
        return "tensor", None
    kind = KINDS.get(annotation) or (text if text in KINDS.values() else "")
    return ("class", annotation) if isinstance(annotation, type) and not kind else (kind, None)


def reads_of(owner: Any) -> Reads:
    """What the code of a function or class reads from its variables, as `eps` in `config.eps`. It
    shows what an object needs. Empty without source."""
    reads: dict[str, dict[str, bool]] = {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return reads
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Subscript):
            continue
        value = node.value
        if isinstance(value, ast.Attribute) and ast.unparse(value.value) == "self":
            name = value.attr  # self.config.eps counts as config.eps.
        elif isinstance(value, ast.Name):
            name = value.id
        else:
            continue
        if isinstance(node, ast.Attribute):
            reads.setdefault(name, {}).setdefault(node.attr, False)
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            reads.setdefault(name, {})[node.slice.value] = True
    return reads

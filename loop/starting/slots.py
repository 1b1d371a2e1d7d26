"""What each parameter of a user's function can be given: a tensor, a size, a value, or an object made of these.

`loop init` reads annotations, defaults and names. Where several things are possible it tries them, the likeliest
first. Runs in a process of its own, for it imports the user's module.
"""

import inspect
import keyword
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

TAKEN = ("dtype", "values", "weight", "weights", "seed", "device", "drawn")
"""Names that workloads and generators use themselves."""
LIST = 3
"""Tensors of a list of which one shape is given."""
INDEX = re.compile(
    r"(.*_)?(idx|ids?|index|indices|indexes|pos|positions?|labels?|tokens?|len|lengths?|lens|slots?)\d?"
)
MASK = re.compile(r".*(mask|keep|valid|flags?)\d*")
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
"""What whole numbers of such names are tried as, before sizes of the inputs."""
FLOATS = ((r".*eps.*", 1e-5), (r".*(drop|prob).*|p", 0.0), (r".*(theta|base).*", 10000.0), (r".*momentum.*", 0.1))
FLAG = re.compile(r"(is|use|has|with|do)_.*|causal|bias|affine|training|keepdim|inplace|normalize|reverse")
AXIS = re.compile(r"(dim|axis|dims|axes|start_dim|end_dim)\d?")
"""Defaults of such names stay as they are: a variant is written for one of them."""
HINTS = {"Long": "int64", "Int": "int64", "Bool": "bool", "Double": "float64"}
"""What the name of an annotated tensor begins with, and its type."""
KINDS = {bool: "bool", int: "int", float: "float", str: "str", torch.dtype: "dtype", torch.device: "device"}
NOTHING = inspect.Parameter.empty
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Drawn:
    """One input tensor, and what it is filled with."""

    name: str
    dims: tuple[str, ...]
    dtype: str = ""
    """Empty: the workload's."""
    values: str = "normal"
    """`normal`, `positive`, `index`, `whole`, `mask` or `mask_out`."""
    high: str = ""
    """Of `index`: a size or a number below which values are."""


@dataclass(frozen=True)
class Option:
    """One thing that a parameter can be given: an expression over inputs, attributes and sizes.

    A size stands as `<x.2>`: the third of the input `x`.
    """

    text: str
    inputs: tuple[Drawn, ...] = ()
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Missing(Exception):
    """A parameter of which nothing is known: its path, and whether it may be a tensor."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(path)
        self.path, self.kind = path, kind


@dataclass(frozen=True)
class Argument:
    """One argument of a call: an expression in which `{token}` stands for the option of a slot."""

    name: str
    text: str
    how: inspect._ParameterKind

    def rendered(self) -> str:
        """As it stands in a call."""
        if self.how is inspect.Parameter.VAR_POSITIONAL:
            return f"*{self.text}"
        return f"{self.name}={self.text}" if self.how is inspect.Parameter.KEYWORD_ONLY else self.text


def parameters(function: Any) -> Iterator[inspect.Parameter]:
    """Parameters with their annotations worked out, of a function or of a class's constructor.

    Raises ValueError where a function written in C does not say.
    """
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    except Exception:  # Names in annotations that only a type checker sees.
        hints = {}
    if inspect.isclass(function):
        hints = {**getattr(function, "__annotations__", {}), **hints}
    for parameter in signature.parameters.values():
        yield parameter.replace(annotation=hints.get(parameter.name, parameter.annotation))


def kind_of(annotation: Any) -> tuple[str, Any, bool]:
    """What an annotation says: a kind, what belongs to it, and whether None is allowed."""
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [part for part in arguments if part is not type(None)]
        kind, inner, _ = kind_of(rest[0])
        return kind, inner, len(rest) < len(arguments)
    if origin is typing.Annotated:
        return kind_of(arguments[0])
    if origin is typing.Literal:
        return "literal", arguments, None in arguments
    if origin is not None and arguments:
        kind, inner, _ = kind_of(arguments[-1] if arguments[-1] is not Ellipsis else arguments[0])
        return "tensors" if kind == "tensor" else "other", inner, False
    if annotation in (None, NOTHING, Any, object, list, tuple, dict):
        return "", None, False
    is_type = isinstance(annotation, type)
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if "Tensor" in text or (is_type and issubclass(annotation, torch.Tensor)):
        return "tensor", next((dtype for word, dtype in HINTS.items() if text.startswith(word)), ""), False
    if annotation in KINDS or text in KINDS.values():
        return KINDS.get(annotation, text), None, False
    return ("class", annotation, False) if is_type else ("", None, False)


class Slots:
    """All that is to be chosen for a call, and for the constructor before it."""

    def __init__(
        self, likes: Mapping[str, Any], given: Mapping[str, Any], attributes: Sequence[str] | None = None
    ) -> None:
        """`likes`: path to shapes, each with `dims`, `dtype` and `high`; `given`: path to a value;
        `attributes`: all that a kernel or a program takes, None: any."""
        self.likes, self.given, self.taken = likes, given, attributes
        self.options: dict[str, list[Option]] = {}
        self.constructing = False
        """Whether it is a constructor's: what has no annotation there is a whole number rather than a tensor."""
        self.imports: dict[str, None] = {}
        self.used: set[str] = set()
        self.notes: list[str] = []
        self.missing: list[Missing] = []
        self.names: list[str] = []
        """All parameters."""
        self.choices: dict[str, tuple[str, ...]] = {}
        self.dims = list(dict.fromkeys(dim for shapes in likes.values() for one in shapes for dim in one["dims"]))

    def arguments(self, function: Any, *, bound: bool = False) -> list[Argument]:
        """What to call a function with; `bound`: its first parameter is `self`."""
        made, by_name, kinds = [], False, inspect.Parameter
        for parameter in list(parameters(function))[1 if bound else 0 :]:
            name, how = parameter.name, parameter.kind
            if how is kinds.VAR_KEYWORD or (how is kinds.VAR_POSITIONAL and name not in self.likes):
                continue
            self.names.append(name)
            try:
                text = self.text(name, parameter.annotation, parameter.default, how)
            except Missing as missing:
                self.missing.append(missing)
                continue
            if text is None:  # What follows it is given by name.
                by_name = True
            else:
                named = by_name and how is kinds.POSITIONAL_OR_KEYWORD
                made.append(Argument(name, text, kinds.KEYWORD_ONLY if named else how))
        return made

    def text(self, path: str, annotation: Any, default: Any, how: Any = None) -> str | None:
        """An expression for a parameter or a field; None: it stays at its default. Raises Missing."""
        kind, inner, nullable = kind_of(annotation)
        below = [name for name in (*self.likes, *self.given) if name.startswith(f"{path}.")]
        if path in self.likes:
            return self._tensors(path, kind, inner, several=how is inspect.Parameter.VAR_POSITIONAL)
        if path in self.given:
            self.used.add(path)
            value = self.given[path]
            if isinstance(value, bool | int | float):
                return self._slot(path, [self._attribute(path, value)])
            return repr(tuple(value) if isinstance(value, list) else value)
        if below or (kind == "class" and default is NOTHING):
            return self._object(path, inner if kind == "class" else None, below)
        if default is not NOTHING:
            return self._default(path, kind, inner, default)
        if nullable:
            self.notes.append(f"{path} stays None")
            return "None"
        options = self._options(path, kind, inner)
        if not options:
            raise Missing(path, kind)
        return self._slot(path, options)

    def _slot(self, path: str, options: list[Option]) -> str:
        self.options[path] = options
        return "{" + path + "}"

    def _tensors(self, path: str, kind: str, hint: Any, *, several: bool) -> str:
        """A tensor, or a list of them; several shapes are those of a list."""
        self.used.add(path)
        shapes, flat = self.likes[path], path.replace(".", "_")
        listed = _listed(flat, shapes)
        if several or kind == "tensors" or len(shapes) > 1:
            return self._slot(path, [listed])
        # Values of an index may be below a size, or a whole number that is given.
        numbers = [str(n) for n in self.given.values() if isinstance(n, int) and not isinstance(n, bool) and n > 1]
        options = tensor_options(flat, shapes[0], hint, [*self.dims, *numbers])
        return self._slot(path, options if kind else [*options, listed])

    def _attribute(self, path: str, value: Scalar) -> Option:
        """A value that a workload can change."""
        name = path.rpartition(".")[2]
        known = {one for options in self.options.values() for option in options for one in option.attributes}
        flat = {like.replace(".", "_") for like in self.likes}
        if name in {*known, *flat, *self.dims, *TAKEN} or keyword.iskeyword(name):
            name = f"{path.replace('.', '_')}_"
        return Option(name, attributes={name: value})

    def _default(self, path: str, kind: str, inner: Any, default: Any) -> str | None:
        """A number, a flag or a choice becomes an attribute; anything else stays as it is."""
        name = path.rpartition(".")[2]
        is_choice = kind == "literal" and isinstance(default, str)
        is_number = isinstance(default, bool | int | float) and not AXIS.fullmatch(name)
        if is_choice or (is_number and (self.taken is None or name in self.taken)):
            option = self._attribute(path, default)
            self.choices |= {option.text: tuple(inner)} if is_choice else {}
            return self._slot(path, [option])
        shown = default.__name__ if isinstance(default, type) else repr(default)
        if default is not None or kind not in ("", "tensor"):
            self.notes.append(f"{path} stays at its default, {shown[:40]}; --set {path}=VALUE changes it")
        else:
            self.notes.append(f"{path} stays None; --like {path}=N,M makes it a tensor")
        return None

    def _object(self, path: str, kind: Any, below: Sequence[str]) -> str:
        """An object of the user's class, or a dict of what is given below its name."""
        if kind is not None:
            self.imports[f"from {kind.__module__} import {kind.__qualname__.partition('.')[0]}"] = None
            texts = {
                one.name: self.text(f"{path}.{one.name}", one.annotation, one.default) for one in parameters(kind)
            }
            fields = (f"{name}={text}" for name, text in texts.items() if text is not None)
            return f"{kind.__qualname__}({', '.join(fields)})"
        names = dict.fromkeys(name[len(path) + 1 :].partition(".")[0] for name in below)
        return "{" + ", ".join(f"{n!r}: {self.text(f'{path}.{n}', None, NOTHING)}" for n in names) + "}"

    def _options(self, path: str, kind: str, inner: Any) -> list[Option]:
        """What a value without a default is tried as; empty where that cannot be guessed."""
        name = path.rpartition(".")[2]
        if kind == "literal":
            option = self._attribute(path, inner[0])
            self.choices |= {option.text: tuple(inner)} if isinstance(inner[0], str) else {}
            return [option]
        if kind == "bool" or (not kind and FLAG.fullmatch(name)):
            return [self._attribute(path, value) for value in (False, True)]
        number = _by_name(FLOATS, name)
        if kind == "float" or (not kind and number is not None):
            return [self._attribute(path, 0.7 if number is None else number)]
        if kind in ("", "int"):
            return self._whole(path, name, kind)
        return {"dtype": [Option("torch.float32")], "device": [Option('"cpu"')]}.get(kind, [])

    def _whole(self, path: str, name: str, kind: str) -> list[Option]:
        """A whole number: a size of an input, or one that such names have."""
        constants = _by_name(INTS, name) or ()
        places: dict[str, str] = {}  # Sizes of inputs, from the last; those called like the parameter come first.
        for tensor, shapes in self.likes.items():
            dims = shapes[0]["dims"] if len(shapes) == 1 else ()
            for axis in reversed(range(len(dims))):
                places.setdefault(dims[axis], f"<{tensor.replace('.', '_')}.{axis}>")
        same = [dim for dim in places if dim.lower() == name.lower()]
        if not kind and not (self.constructing or "." in path or constants or same):
            return []
        sizes = [Option(places[dim]) for dim in (*same, *(dim for dim in places if dim not in same))]
        numbers = [self._attribute(path, value) for value in dict.fromkeys((*constants, 4, 2, 1))]
        likely = 0 if same else len(constants)
        return [*numbers[:likely], *sizes, *numbers[likely:]]


def tensor_options(name: str, like: Mapping[str, Any], hint: Any, highs: Iterable[str]) -> list[Option]:
    """What a tensor is tried as: by the type that is given or annotated, else by its name."""
    dims, dtype = tuple(like["dims"]), like["dtype"] or (hint if isinstance(hint, str) else "")
    ends = [like["high"]] if like["high"] else list(highs)
    is_whole, lower = dtype.strip("u").startswith("int"), name.lower()

    def of(values: Sequence[str], kind: str, ends: Sequence[str] = ("",), what: str = "") -> list[Option]:
        others = f"--like {name}={','.join(dims)}:float32 for others"
        notes = (f"{name}: {what}, as its name or use says; {others}",) if what and not dtype else ()
        return [Option(name, (Drawn(name, dims, kind, one, end),), notes=notes) for one in values for end in ends]

    index = of(["index"], dtype if is_whole else "int64", ends, "whole numbers")
    masks = of(["mask", "mask_out"], "bool", what="truth values")
    normal, whole = of(["normal", "positive"], dtype), of(["whole"], dtype)
    is_index = bool(INDEX.fullmatch(lower) or like["high"])
    if dtype == "bool":
        return masks
    if dtype:
        return normal if not is_whole else [*index, *whole] if is_index else [*whole, *index]
    if is_index:
        return [*index, *normal]
    return [*masks, *normal, *index] if MASK.fullmatch(lower) else [*normal, *index, *masks]


def _listed(flat: str, shapes: Sequence[Mapping[str, Any]]) -> Option:
    """A list of tensors: of the shapes, or some of the only one."""
    several = [shapes[n % len(shapes)] for n in range(max(len(shapes), LIST if len(shapes) == 1 else 0))]
    inputs = tuple(tensor_options(f"{flat}_{n}", one, "", ())[0].inputs[0] for n, one in enumerate(several))
    names = ", ".join(drawn.name for drawn in inputs)
    return Option(f"[{names}]", inputs, notes=(f"{flat}: a list of {len(inputs)} tensors",))


def _by_name(table: Sequence[tuple[str, Any]], name: str) -> Any:
    """What a table has for a name."""
    return next((value for pattern, value in table if re.fullmatch(pattern, name.lower())), None)

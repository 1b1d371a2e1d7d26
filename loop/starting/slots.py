"""What each parameter of a user's function can be given: a tensor, a size, a value, or an object made of these.

`loop init` reads annotations, defaults and names. Where several things are possible it tries them, the likeliest
first. Runs in a process of its own, for it imports the user's module.
"""

import enum
import inspect
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loop.starting.annotations import class_with, is_object, kind_of, parameters, reads_of

TAKEN = ("dtype", "values", "weight", "weights", "seed", "device", "drawn")
"""Names that workloads and generators use themselves."""
LIST = 3
"""Tensors of a list of which one shape is given."""
INDEX = re.compile(
    r"(.*_)?(idx|ids?|index|indices|indexes|pos|positions?|labels?|tokens?|len|lengths?|lens|slots?)\d?"
)
ORDERS = (
    (re.compile(r".*slots?(_mapping|_ids|_idx)?"), "distinct"),
    (re.compile(r".*(cu_seqlens?|indptr|offsets|crow\w*)"), "sorted"),
)
"""Names of indices that a row is written to once, or that only grow."""
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
"""What whole numbers of such names are tried as, before sizes of the inputs."""
FLOATS = ((r".*eps.*", 1e-5), (r".*(drop|prob).*|p", 0.0), (r".*(theta|base).*", 10000.0), (r".*momentum.*", 0.1))
FLAG = re.compile(r"(is|use|has|with|do)_.*|causal|bias|affine|training|keepdim|inplace|normalize|reverse")
AXIS = re.compile(r"(dim|axis|dims|axes|start_dim|end_dim)\d?")
"""Defaults of such names stay as they are: a variant is written for one of them."""
Scalar = bool | int | float | str


@dataclass(frozen=True)
class Drawn:
    """One input tensor, and what it is filled with."""

    name: str
    dims: tuple[str, ...]
    dtype: str = ""
    """Empty: the workload's."""
    values: str = "normal"
    """`normal`, `positive`, `index`, `distinct`, `whole`, `sorted`, `mask` or `mask_out`."""
    high: str = ""
    """Of `index`, `distinct` and `sorted`: a size or a number below which values are."""


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
        if self.how in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            return f"{'*' if self.how is inspect.Parameter.VAR_POSITIONAL else '**'}{self.text}"
        return f"{self.name}={self.text}" if self.how is inspect.Parameter.KEYWORD_ONLY else self.text


class Slots:
    """All that is to be chosen for a call, and for the constructor before it."""

    def __init__(
        self, likes: Mapping[str, Any], values: Mapping[str, Any], attributes: Sequence[str] | None = None
    ) -> None:
        """`likes`: path to shapes, each with `dims`, `dtype` and `high`; `values`: path to a value;
        `attributes`: all that a kernel or a program takes, None: any."""
        self.likes, self.values, self.taken = likes, values, attributes
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
        self.dims = {dim for shapes in likes.values() for shape in shapes for dim in shape["dims"]}

    def arguments(self, function: Any, owner: Any = None, *, bound: bool = False) -> list[Argument]:
        """What to call a function with; `bound`: its first parameter is `self`."""
        known, arguments, by_name = list(parameters(function))[1 if bound else 0 :], [], False
        reads, kinds = reads_of(owner or function), inspect.Parameter
        for parameter in known:
            name, kind = parameter.name, parameter.kind
            if kind is kinds.VAR_KEYWORD or (kind is kinds.VAR_POSITIONAL and name not in self.likes):
                continue
            self.names.append(name)
            try:
                text = self.text(name, parameter.annotation, parameter.default, reads, kind)
            except Missing as missing:
                self.missing.append(missing)
                continue
            if text is None:  # What follows it is given by name.
                by_name = True
            elif by_name and kind is kinds.POSITIONAL_OR_KEYWORD:
                arguments.append(Argument(name, text, kinds.KEYWORD_ONLY))
            else:
                arguments.append(Argument(name, text, kind))
        return arguments

    def text(
        self, path: str, annotation: Any, default: Any, reads: Mapping[str, Any], how: Any = None
    ) -> str | None:
        """An expression for a parameter or a field; None: it stays at its default. Raises Missing."""
        kind, inner, nullable = kind_of(annotation)
        below = [name for name in (*self.likes, *self.values) if name.startswith(f"{path}.")]
        if path in self.likes:
            return self._tensors(path, kind, inner, several=how is inspect.Parameter.VAR_POSITIONAL)
        if path in self.values:
            self.used.add(path)
            return self._value(path, self.values[path], kind)
        if not below and default is not inspect.Parameter.empty:
            return self._default(path, kind, inner, default)
        if not below and nullable:
            self.notes.append(f"{path} stays None")
            return "None"
        return self._required(path, kind, inner, reads, is_given=bool(below))

    def _required(self, path: str, kind: str, inner: Any, reads: Mapping[str, Any], *, is_given: bool) -> str:
        """An expression for what has no default: an object, or a value that can be guessed."""
        name = path.rpartition(".")[2]
        is_read = not kind and (CONFIG.fullmatch(name) or is_object(reads.get(name, ())))
        if kind == "class" or is_given or is_read:
            return self._object(path, inner if kind == "class" else None, reads)
        options = self._options(path, name, kind, inner)
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
        if several or kind == "tensors" or len(shapes) > 1:
            return self._slot(path, [_listed(flat, shapes)])
        sizes = dict.fromkeys(dim for likes in self.likes.values() for like in likes for dim in like["dims"])
        numbers = [n for n in self.values.values() if isinstance(n, int) and not isinstance(n, bool) and n > 1]
        options = tensor_options(flat, shapes[0], hint, [*sizes, *map(str, numbers)])
        return self._slot(path, options if kind else [*options, _listed(flat, shapes)])

    def _attribute(self, path: str, value: Scalar) -> Option:
        """A value that a workload can change."""
        name = path.rpartition(".")[2]
        known = {name for options in self.options.values() for option in options for name in option.attributes}
        flat = {tensor.replace(".", "_") for tensor in self.likes}
        if name in {*known, *flat, *self.dims, *TAKEN} or keyword.iskeyword(name):
            name = f"{path.replace('.', '_')}_"
        return Option(name, attributes={name: value})

    def _value(self, path: str, value: Any, kind: str) -> str:
        if isinstance(value, bool | int | float):
            return self._slot(path, [self._attribute(path, value)])
        return repr(tuple(value)) if isinstance(value, list) and kind != "list" else repr(value)

    def _default(self, path: str, kind: str, inner: Any, default: Any) -> str | None:
        """A number or a flag becomes an attribute; anything else stays as it is."""
        name = path.rpartition(".")[2]
        if kind == "literal" and isinstance(default, str):
            option = self._attribute(path, default)
            self.choices[option.text] = tuple(inner)
            return self._slot(path, [option])
        is_number = isinstance(default, bool | int | float) and not isinstance(default, enum.Enum)
        if is_number and not AXIS.fullmatch(name) and (self.taken is None or name in self.taken):
            return self._slot(path, [self._attribute(path, default)])
        shown = default.__name__ if isinstance(default, type) else repr(default)
        if default is not None or kind not in ("", "tensor"):
            self.notes.append(f"{path} stays at its default, {shown[:40]}; --set {path}=VALUE changes it")
        else:
            self.notes.append(f"{path} stays None; --like {path}=N,M makes it a tensor")
        return None

    def _object(self, path: str, kind: Any, reads: Mapping[str, Any]) -> str:
        """An object of the user's class, or one with the attributes that the code reads of it."""
        name = path.rpartition(".")[2]
        below = {
            full_path[len(path) + 1 :].partition(".")[0]
            for full_path in (*self.likes, *self.values)
            if full_path.startswith(f"{path}.")
        }
        attributes, keys = reads.get(name, ((), ()))
        kind = kind or class_with({*attributes, *below}, reads.get("")) if attributes or below else kind
        if kind is not None:
            if issubclass(kind, enum.Enum):
                self.imports[f"from {kind.__module__} import {kind.__qualname__}"] = None
                return f"{kind.__qualname__}.{next(iter(kind)).name}"
            self.imports[f"from {kind.__module__} import {kind.__qualname__.partition('.')[0]}"] = None
            texts = {
                field.name: self.text(f"{path}.{field.name}", field.annotation, field.default, reads)
                for field in parameters(kind)
            }
            return f"{kind.__qualname__}({_keywords(texts)})"
        names = dict.fromkeys((*attributes, *keys, *sorted(below)))
        if not names:
            raise Missing(path, "")
        texts = {name: self.text(f"{path}.{name}", None, inspect.Parameter.empty, {}) for name in names}
        change = f"--set {path}.{next(iter(names))}=VALUE changes it"
        self.notes.append(f"{path} has {', '.join(names)}, as the code reads them; {change}")
        if keys or not attributes:
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in texts.items()) + "}"
        self.imports["from types import SimpleNamespace"] = None
        return f"SimpleNamespace({_keywords(texts)})"

    def _options(self, path: str, name: str, kind: str, inner: Any) -> list[Option]:
        """What a value without a default is tried as; empty where that cannot be guessed."""
        if kind == "literal":
            option = self._attribute(path, inner[0])
            self.choices |= {option.text: tuple(inner)} if isinstance(inner[0], str) else {}
            return [option]
        if kind == "bool" or (not kind and FLAG.fullmatch(name)):
            return [self._attribute(path, value) for value in (False, True)]
        number = _by_name(FLOATS, name)
        if kind == "float" or (not kind and number is not None):
            return [self._attribute(path, 0.7 if number is None else number)]
        if kind in ("", "int", "ints"):
            return self._whole(path, name, kind)
        return {"dtype": [Option("torch.float32")], "device": [Option('"cpu"')]}.get(kind, [])

    def _whole(self, path: str, name: str, kind: str) -> list[Option]:
        """A whole number, or several: a size of an input, or one that such names have."""
        constants = _by_name(INTS, name) or ()
        sizes, same = self._sizes(name)
        if kind == "ints":
            last = [Option(f"(<{tensor}.{len(dims) - 1}>,)") for tensor, dims in self._shapes()]
            return [*last, *(Option(repr((constant,) * n)) for constant in constants for n in (2, 1))]
        if not kind and not (self.constructing or "." in path or constants or same):
            return []
        numbers = [self._attribute(path, value) for value in dict.fromkeys((*constants, 4, 2, 1))]
        likely = 0 if same else len(constants)
        return [*numbers[:likely], *map(Option, sizes), *numbers[likely:]]

    def _shapes(self) -> list[tuple[str, Sequence[str]]]:
        return [
            (path.replace(".", "_"), shapes[0]["dims"]) for path, shapes in self.likes.items() if len(shapes) == 1
        ]

    def _sizes(self, name: str) -> tuple[list[str], bool]:
        """Sizes of inputs, those called like the parameter first, then from the last; whether one is called so."""
        sizes: dict[str, str] = {}
        for tensor, dims in self._shapes():
            for axis in reversed(range(len(dims))):
                sizes.setdefault(dims[axis], f"<{tensor}.{axis}>")
        same = [dim for dim in sizes if dim.lower() == name.lower()]
        return [sizes[dim] for dim in (*same, *(other for other in sizes if other not in same))], bool(same)


def tensor_options(name: str, like: Mapping[str, Any], hint: Any, highs: Iterable[str]) -> list[Option]:
    """What a tensor is tried as: by the type that is given or annotated, else by its name."""
    dims, dtype = tuple(like["dims"]), like["dtype"] or (hint if isinstance(hint, str) else "")
    ends = [like["high"]] if like["high"] else list(highs)
    is_whole = dtype.strip("u").startswith("int")

    def of(values: Sequence[str], kind: str, ends: Sequence[str] = ("",), note: str = "") -> list[Option]:
        notes = (note,) if note and not dtype else ()
        return [
            Option(name, (Drawn(name, dims, kind, fill, end),), notes=notes) for fill in values for end in ends
        ]

    shown, lower = f"--like {name}={','.join(dims)}:float32 for others", name.lower()
    index_note = f"{name}: whole numbers, as its name or use says; {shown}"
    special = [values for pattern, values in ORDERS if pattern.fullmatch(lower)]
    index = of([*special, "index"], dtype if is_whole else "int64", ends, index_note)
    masks = of(["mask", "mask_out"], "bool", note=f"{name}: truth values, as its name or use says; {shown}")
    normal, whole = of(["normal", "positive"], dtype), of(["whole"], dtype)
    is_index = bool(special or INDEX.fullmatch(lower) or like["high"])
    if dtype:
        typed: dict[str, list[Option]] = {"bool": masks} | (
            {dtype: [*index, *whole] if is_index else [*whole, *index]} if is_whole else {}
        )
        return typed.get(str(dtype), normal)
    if is_index:
        return [*index, *normal]
    return [*masks, *normal, *index] if MASK.fullmatch(lower) else [*normal, *index, *masks]


def _listed(flat: str, shapes: Sequence[Mapping[str, Any]]) -> Option:
    """A list of tensors: of the shapes, or some of the only one."""
    several = [shapes[n % len(shapes)] for n in range(max(len(shapes), LIST if len(shapes) == 1 else 0))]
    inputs = tuple(tensor_options(f"{flat}_{n}", shape, "", ())[0].inputs[0] for n, shape in enumerate(several))
    listed = ", ".join(tensor.name for tensor in inputs)
    return Option(f"[{listed}]", inputs, notes=(f"{flat}: a list of {len(inputs)} tensors",))


def _by_name(table: Sequence[tuple[str, Any]], name: str) -> Any:
    """What a table has for a name."""
    return next((value for pattern, value in table if re.fullmatch(pattern, name.lower())), None)


def _keywords(texts: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={text}" for name, text in texts.items() if text is not None)

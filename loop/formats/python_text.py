"""Python of somebody else's, read as text: what it defines, imports, and computes from constants. Nothing runs."""

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from loop.base.documents.yaml_text import shown
from loop.base.errors import Complaint, DefinitionError

MOST_BYTES = 4 << 20
MAKERS = ("rand", "randn", "zeros", "ones", "empty")
"""Functions of torch that take a shape and give float32."""
RANDOM = ("rand", "randn", "empty")
"""Those of them whose values are drawn, or unknown."""
SAME_SHAPE = (
    "triu",
    "tril",
    "abs",
    "exp",
    "sigmoid",
    "softmax",
    "contiguous",
    "clone",
    "cuda",
    "cpu",
    "requires_grad_",
)
CASTS = {"float": "float32", "half": "float16", "double": "float64", "bfloat16": "bfloat16", "bool": "bool"}
CASTS |= {"int": "int32", "long": "int64"}
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}
MOST = 10**12
"""No size of a tensor is larger: arithmetic beyond it is not worked out."""


class Unknown(Exception):
    """Only running the code would tell."""


@dataclass(frozen=True)
class Tensors:
    """A tensor that an expression would make."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    drawn: bool = True
    """Whether its values are drawn at random."""


@dataclass(frozen=True)
class Module:
    """A file of Python, parsed."""

    path: Path
    tree: ast.Module
    text: str

    def function(self, name: str) -> ast.FunctionDef | None:
        """A function at its top level; the last of that name."""
        functions = [node for node in self.tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
        return functions[-1] if functions else None

    def defines(self, name: str) -> bool:
        """Whether a function, a class, an import or an assignment at its top level has that name."""
        return any(name in _names(node) for node in self.tree.body)

    def class_of(self, name: str) -> ast.ClassDef | None:
        """A class at its top level."""
        return next(
            (node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name), None
        )

    @property
    def imports(self) -> tuple[str, ...]:
        """Packages that it imports anywhere, by their first word."""
        return _imported(ast.walk(self.tree))

    @property
    def needed(self) -> tuple[str, ...]:
        """Those of them without which it cannot be loaded: a branch may do without one."""
        return _imported(self.tree.body)

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Names at its top level whose values follow from the text alone."""
        return _assigned(self.tree.body, {})

    def returned(self, name: str) -> list[Any]:
        """What a function without arguments returns, as a list. Raises Unknown where only running it tells."""
        function = self.function(name)
        if function is None:
            raise Unknown(name)
        names = _assigned(function.body, self.constants)
        last = function.body[-1]
        if not isinstance(last, ast.Return) or last.value is None:
            raise Unknown(name)
        value = evaluate(last.value, names)
        return list(value) if isinstance(value, list | tuple) else [value]


def _imported(nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names[node.module.split(".")[0]] = None
    return tuple(names)


def mistake(
    path: Path, expected: str, got: str, line: int = 1, column: int = 1, hint: str | None = None
) -> DefinitionError:
    """A DefinitionError about one place of a file."""
    return DefinitionError([Complaint(shown(path), line, column, "", expected, got, hint)])


def read_text(path: Path) -> str:
    """The text of a file. Raises DefinitionError where it is none, or too large."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError as error:
        raise mistake(path, "a file that can be read", error.strerror or "an error") from error
    if data is None:
        raise mistake(path, f"at most {MOST_BYTES >> 20} MiB", "a larger file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise mistake(path, "UTF-8 text", f"byte 0x{data[error.start]:02x}", line) from error


def read_module(path: Path, text: str | None = None) -> Module:
    """Parse a file, or text that a file holds. Raises DefinitionError with the line of a syntax error."""
    source = read_text(path) if text is None else text
    try:
        return Module(path, ast.parse(source), source)
    except SyntaxError as error:
        raise mistake(
            path, "Python", f"a mistake in it: {error.msg}", error.lineno or 1, error.offset or 1
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise mistake(path, "Python", f"{type(error).__name__}: {error}"[:80]) from error


def wants_cuda(modules: Sequence[Module]) -> bool:
    """Whether the text names the device `cuda`, or moves tensors to it."""
    return any(_names_cuda(node) for module in modules for node in ast.walk(module.tree))


def _names_cuda(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and (node.value == "cuda" or node.value.startswith("cuda:"))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"


def evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression of constants, sizes and calls that make tensors. Raises Unknown for any other."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in names:
            return names[node.id]
        case ast.Tuple() | ast.List():
            items = list(_elements(node.elts, names))
            return tuple(items) if isinstance(node, ast.Tuple) else items
        case ast.Dict() if all(isinstance(key, ast.Constant) for key in node.keys):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            return {str(key): evaluate(value, names) for key, value in zip(keys, node.values, strict=True)}
        case ast.UnaryOp(op=ast.USub()):
            value = evaluate(node.operand, names)
            if isinstance(value, int | float | Tensors):
                return value if isinstance(value, Tensors) else -value
        case ast.BinOp():
            return _combined(node, names)
        case ast.Attribute(attr="shape" | "T"):
            tensor = _tensor(evaluate(node.value, names))
            return tensor.shape if node.attr == "shape" else replace(tensor, shape=tensor.shape[::-1])
        case ast.Subscript():
            try:
                return evaluate(node.value, names)[evaluate(node.slice, names)]
            except (TypeError, LookupError) as error:
                raise Unknown("[]") from error
        case ast.Call():
            return _called(node, names)
    raise Unknown(ast.unparse(node)[:40])


def _elements(nodes: Sequence[ast.expr], names: Mapping[str, Any]) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, ast.Starred):
            inner = evaluate(node.value, names)
            if not isinstance(inner, list | tuple):
                raise Unknown("*")
            yield from inner
        else:
            yield evaluate(node, names)


def _combined(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    left, right = evaluate(node.left, names), evaluate(node.right, names)
    tensors = [value for value in (left, right) if isinstance(value, Tensors)]
    if tensors:
        widest = max(tensors, key=lambda tensor: len(tensor.shape))
        return replace(widest, drawn=any(tensor.drawn for tensor in tensors))
    if type(node.op) not in OPERATORS or not _is_small(node.op, left, right):
        raise Unknown("operator")
    try:
        return OPERATORS[type(node.op)](left, right)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise Unknown("operator") from error


def _is_small(kind: ast.operator, left: Any, right: Any) -> bool:
    """Whether a sum, product or power of these is worked out in no time."""
    if isinstance(left, list | tuple):
        return isinstance(right, int) and right < 10_000
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return False
    return abs(left) <= MOST and abs(right) <= (64 if isinstance(kind, ast.Pow | ast.LShift) else MOST)


def _called(node: ast.Call, names: Mapping[str, Any]) -> Any:
    function = node.func
    if not isinstance(function, ast.Attribute):
        raise Unknown(ast.unparse(function)[:40])
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    if isinstance(function.value, ast.Name) and function.value.id in ("torch", "th"):
        return _from_torch(function.attr, node.args, keywords, names)
    tensor = _tensor(evaluate(function.value, names))
    if function.attr in CASTS:
        return replace(tensor, dtype=CASTS[function.attr])
    if function.attr == "to":
        types = [_dtype(argument) for argument in (*node.args, *keywords.values())]
        return replace(tensor, dtype=next((dtype for dtype in types if dtype), tensor.dtype))
    if function.attr in SAME_SHAPE:
        return tensor
    raise Unknown(function.attr)


def _from_torch(
    name: str, positional: Sequence[ast.expr], keywords: Mapping[str, ast.expr], names: Mapping[str, Any]
) -> Tensors:
    """What a function of torch makes."""
    dtype = _dtype(keywords["dtype"]) if "dtype" in keywords else None
    if name == "randint":  # The range of the values does not matter, and is often unknown.
        size = keywords.get("size", positional[-1] if positional else None)
        return Tensors(_shape(evaluate(size, names) if size else None), dtype or "int64")
    arguments = list(_elements(positional, names))
    if name in MAKERS:
        sizes = evaluate(keywords["size"], names) if "size" in keywords else arguments
        whole = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes
        return Tensors(_shape(whole), dtype or "float32", name in RANDOM)
    return _like(name, arguments, dtype)


def _like(name: str, arguments: Sequence[Any], dtype: str | None) -> Tensors:
    """What a function of torch makes of another tensor, of the same shape."""
    if not arguments or not (name in SAME_SHAPE or name.endswith("_like")):
        raise Unknown(name)
    tensor = _tensor(arguments[0])
    drawn = name.startswith("rand") or (tensor.drawn and not name.endswith("_like"))
    return replace(tensor, dtype=dtype or tensor.dtype, drawn=drawn)


def _dtype(node: ast.expr) -> str | None:
    """`float16` of `torch.float16`."""
    return node.attr if isinstance(node, ast.Attribute) else None


def _shape(value: Any) -> tuple[int, ...]:
    sizes = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= MOST for size in sizes):
        raise Unknown("shape")
    return sizes


def _tensor(value: Any) -> Tensors:
    if not isinstance(value, Tensors):
        raise Unknown("tensor")
    return value


def _assigned(body: Sequence[ast.stmt], known: Mapping[str, Any]) -> dict[str, Any]:
    """Names that assignments give values to, as far as these follow from the text."""
    names = dict(known)
    for node in body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            try:
                value = evaluate(node.value, names)  # type: ignore[attr-defined]
            except (Unknown, RecursionError):
                for name in _targets(target):
                    names.pop(name, None)
            else:
                _bind(target, value, names)
    return names


def _bind(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, ast.Tuple) and isinstance(value, list | tuple) and len(value) == len(target.elts):
        for element, inner in zip(target.elts, value, strict=True):
            _bind(element, inner, names)


def _targets(node: ast.expr) -> Iterator[str]:
    return (name.id for name in ast.walk(node) if isinstance(name, ast.Name))


def _names(node: ast.stmt) -> set[str]:
    """Names that one statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.Assign):
        return {name for target in node.targets for name in _targets(target)}
    return set()

"""What the text and the annotations of a user's function say of its parameters."""

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any

import torch

HINTS = {"Long": "int64", "Int": "int64", "Bool": "bool", "Double": "float64"}
"""What the name of an annotated tensor begins with, and its type."""
KINDS = {bool: "bool", int: "int", float: "float", str: "str", torch.dtype: "dtype", torch.device: "device"}


def parameters(function: Any) -> Iterator[inspect.Parameter]:
    """Parameters with their annotations worked out, of a function or of a class's constructor.

    Raises ValueError where a function written in C does not say.
    """
    signature = inspect.signature(function)
    source = function.__init__ if inspect.isclass(function) else function
    try:
        hints = typing.get_type_hints(source)
    except Exception:  # Names in annotations that only a type checker sees.
        hints = {}
    if inspect.isclass(function):
        hints = {**getattr(function, "__annotations__", {}), **hints}
    for parameter in signature.parameters.values():
        annotation = hints.get(parameter.name, parameter.annotation)
        yield parameter.replace(annotation=annotation)


def kind_of(annotation: Any) -> tuple[str, Any, bool]:
    """What an annotation says: a kind, what belongs to it, and whether None is allowed."""
    arguments, origin = typing.get_args(annotation), typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        kind, inner, _ = kind_of(rest[0])
        return kind, inner, len(rest) < len(arguments)
    if origin is typing.Annotated:
        return kind_of(arguments[0])
    if origin is typing.Literal:
        return "literal", arguments, None in arguments
    if origin is not None and arguments:
        kind, inner, _ = kind_of(arguments[-1] if arguments[-1] is not Ellipsis else arguments[0])
        return {"tensor": "tensors", "int": "ints"}.get(kind, "other"), inner, False
    return (*_simple(annotation), False)


def _simple(annotation: Any) -> tuple[str, Any]:
    """The same of an annotation without arguments."""
    if annotation in (None, inspect.Parameter.empty, Any, object, list, tuple, dict):
        return "", None
    is_type = isinstance(annotation, type)
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if "Tensor" in text or (is_type and issubclass(annotation, torch.Tensor)):
        return "tensor", next((kind for word, kind in HINTS.items() if text.startswith(word)), "")
    if annotation in KINDS:
        return KINDS[annotation], None
    if text in KINDS.values():
        return text, None
    return ("class", annotation) if is_type else ("", None)


def reads_of(owner: Any) -> dict[str, Any]:
    """Name to the attributes and keys that the code of a function or class reads of it; "": its module."""
    reads: dict[str, Any] = {"": inspect.getmodule(owner)}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return reads
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Subscript) or not (name := _last(node.value)):
            continue
        attributes, keys = reads.setdefault(name, ({}, {}))
        if isinstance(node, ast.Attribute):
            attributes[node.attr] = None
        elif isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            keys[node.slice.value] = None
    return reads


def _last(node: ast.expr) -> str:
    """`config` of `config` and of `self.config`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_object(read: Any) -> bool:
    """Whether what is read of a name is nothing that a tensor has."""
    return bool(read) and (bool(read[1]) or any(not hasattr(torch.Tensor, name) for name in read[0]))


def class_with(names: set[str], module: Any) -> Any:
    """A dataclass or class of a module whose constructor takes all these names."""
    for cls in vars(module).values() if module else ():
        if inspect.isclass(cls) and cls.__module__ == module.__name__ and not issubclass(cls, torch.nn.Module):
            try:
                known = inspect.signature(cls).parameters
            except ValueError:
                continue
            if names <= known.keys():
                return cls
    return None

"""JSON and JSON lines of somebody else's as documents: each value has a line, found once somebody asks for it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from loop.base.documents import Document, load_yaml, parse
from loop.base.documents.yaml_text import shown
from loop.base.errors import DefinitionError
from loop.formats.python_text import mistake, read_text
from loop.model.base import Model

T = TypeVar("T", bound=Model)


def read_json(path: Path, model: type[T]) -> tuple[T, Document]:
    """One JSON file as a model. Raises DefinitionError with line and column of every mistake."""
    return _read(path, model, read_text(path), 0)


def read_lines(path: Path, model: type[T]) -> Iterator[tuple[T, Document]]:
    """Each line of a file as a model; empty lines are passed over."""
    for number, line in enumerate(read_text(path).split("\n")):
        if line.strip():
            yield _read(path, model, line, number)


def _read(path: Path, model: type[T], text: str, above: int) -> tuple[T, Document]:
    data = _data(path, text, above)
    document = Document(shown(path), data)
    try:
        return parse(model, document), document
    except DefinitionError:
        placed = _placed(path, data, text, above)
        parse(model, placed)  # The same mistakes, now at their lines.
        raise


def _placed(path: Path, data: Any, text: str, above: int) -> Document:
    """The document with the place of each value: JSON is YAML, but for what YAML cannot say."""
    try:
        marks = load_yaml("\n" * above + text, shown(path)).marks
    except DefinitionError:
        return Document(shown(path), data, (above + 1, 1))
    return Document(shown(path), data, marks)


def located(path: Path, document: Document, line: int = 0) -> Document:
    """A document that was read from a file, with the place of each value."""
    text = read_text(path)
    return _placed(path, document.data, text.split("\n")[line] if line else text, line)


def _data(path: Path, text: str, above: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise mistake(path, "JSON", error.msg, error.lineno + above, error.colno) from error
    except RecursionError as error:
        raise mistake(path, "JSON", "a structure that is too deep", above + 1) from error

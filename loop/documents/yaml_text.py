"""YAML 1.2 to plain data, each value with its line and column. Built on PyYAML's parser events.

PyYAML's own loader accepts duplicate keys, reads `no` as false and `12:30:45` as 45045, expands aliases
without limit and leaks RecursionError and ValueError; so it is used for its grammar only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from loop.errors import Complaint, DefinitionError, LoopError

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_DIGITS = 300
PARSER: Any = getattr(getattr(yaml, "cyaml", None), "CParser", None)
"""libyaml's parser where PyYAML was built with it: ten times faster, the same events."""

Place = tuple[str | int, ...]
INTEGER = re.compile(r"[-+]?[0-9]+\Z")
OTHER_INTEGER = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
SPECIAL = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
"""Plain scalars of the YAML 1.2 core schema that are not numbers or text."""


@dataclass
class Document:
    """Plain data from one file, and where each value stands."""

    name: str
    """The file as complaints name it."""
    data: Any = None
    values: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Line and column, from 1, of each value."""
    keys: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """The same of each mapping key."""

    def position(self, place: Place, *, key: bool = False) -> tuple[int, int]:
        """Line and column of a value (or of its key), or of the nearest thing around it."""
        if key and place in self.keys:
            return self.keys[place]
        while place and place not in self.values:
            place = place[:-1]
        return self.values.get(place, (1, 1))


def load_yaml(source: Path | str, name: str | None = None, *, parser: Any = None) -> Document:
    """Read a YAML file, or text when a `name` for it is given.

    Raises DefinitionError with file, line and column for anything that is not one plain YAML document.
    """
    if isinstance(source, Path):
        name = name or _shown(source)
        text = _decode(_bytes(source, name), name)
    else:
        name, text = name or "<text>", source
        if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
            raise _error(name, 1, 1, "at most 1 MiB", f"{len(text)} characters")
    return _Builder(name, text, parser or PARSER or _PurePython).document()


def _shown(path: Path) -> str:
    """A path as short as it can be said from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _bytes(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise LoopError(f"{name}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise _error(name, 1, 1, "at most 1 MiB", "a larger file")
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        line = before.count(b"\n") + 1
        raise _error(name, line, column, "UTF-8 text", f"byte 0x{data[error.start]:02x}") from error


def _error(name: str, line: int, column: int, expected: str, got: str, path: str = "") -> DefinitionError:
    return DefinitionError([Complaint(name, line, column, path, expected, got)])


class _PurePython(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """PyYAML's parser without its loader."""

    def __init__(self, stream: str) -> None:
        yaml.reader.Reader.__init__(self, stream)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


class _Builder:
    """Builds data from parser events, checking each as it comes, so that nothing hostile gets far."""

    def __init__(self, name: str, text: str, parser: Any) -> None:
        self.result = Document(name)
        self.text = text
        self.events = self._events(parser)

    def _events(self, parser: Any) -> Iterator[Any]:
        """Parser events; a mistake in the grammar becomes a DefinitionError."""
        try:
            source = parser(self.text)
            while source.check_event():
                yield source.get_event()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            raise _error(self.result.name, line, column, "YAML", error.problem or "a mistake") from error
        except yaml.reader.ReaderError as error:
            line, column = self._place_of(error.character)
            got = "a character that YAML does not allow"
            raise _error(self.result.name, line, column, "printable text", got) from error
        except (ValueError, IndexError, KeyError, RecursionError, OverflowError, yaml.YAMLError) as error:
            raise _error(self.result.name, 1, 1, "YAML", f"{type(error).__name__}: {error}"[:80]) from error

    def _place_of(self, character: Any) -> tuple[int, int]:
        """Line and column of the first character that YAML does not allow."""
        wanted = chr(character) if isinstance(character, int) else str(character)
        before = self.text.partition(wanted)[0]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1

    def document(self) -> Document:
        """The one document of the text."""
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                break
        else:
            raise self._complain(None, (), "a YAML document", "an empty file")
        self.result.data = self._value(next(self.events), ())
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise self._complain(event, (), "one document", "a second one")
        return self.result

    def _complain(self, event: Any, place: Place, expected: str, got: str) -> DefinitionError:
        line, column = _position(event) if event is not None else (1, 1)
        return _error(self.result.name, line, column, expected, got, dotted(place))

    def _value(self, event: Any, place: Place) -> Any:
        self._refuse_decoration(event, place)
        self.result.values[place] = _position(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, place)
        if len(place) >= MAX_DEPTH:
            raise self._complain(event, place[:3], f"at most {MAX_DEPTH} levels", "a deeper structure")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(place)
        return self._mapping(place)

    def _refuse_decoration(self, event: Any, place: Place) -> None:
        """Aliases explode, anchors serve aliases, tags construct: none of them is taken."""
        if isinstance(event, yaml.AliasEvent):
            raise self._complain(event, place, "a value written out", f"the alias *{event.anchor}")
        if event.anchor:
            raise self._complain(event, place, "a value without an anchor", f"&{event.anchor}")
        if event.tag and event.tag != "!":
            raise self._complain(event, place, "a value without a tag", str(event.tag)[:60])

    def _sequence(self, place: Place) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            found.append(self._value(event, (*place, len(found))))
        return found

    def _mapping(self, place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, place)
            if key in found:
                first = self.result.keys[(*place, key)][0]
                raise self._complain(
                    event, (*place, key), "each key once", f"{key!r} again, first on line {first}"
                )
            self.result.keys[(*place, key)] = _position(event)
            found[key] = self._value(next(self.events), (*place, key))
        return found

    def _key(self, event: Any, place: Place) -> str:
        self._refuse_decoration(event, place)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._complain(event, place, "a word as a key", "a structure")
        key = self._scalar(event, place)
        if not isinstance(key, str):
            raise self._complain(event, place, "a word as a key", repr(key)[:60])
        if key == "<<" and not event.style:
            raise self._complain(event, place, "a key", "the merge key <<")
        return key

    def _scalar(self, event: Any, place: Place) -> Any:
        text: str = event.value
        if event.style or event.tag == "!":
            return text
        if text in SPECIAL:
            return SPECIAL[text]
        if INTEGER.match(text) or OTHER_INTEGER.match(text) or FLOAT.match(text):
            if len(text) > MAX_DIGITS:
                raise self._complain(event, place, f"a number of at most {MAX_DIGITS} digits", f"{len(text)}")
            return _number(text)
        return text


def _number(text: str) -> int | float:
    if INTEGER.match(text):
        return int(text)
    return int(text, 0) if OTHER_INTEGER.match(text) else float(text)


def _position(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def dotted(place: Place) -> str:
    """A place as complaints write it: `steps.0.budget_s`."""
    return ".".join(str(part) for part in place)

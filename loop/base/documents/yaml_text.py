"""Reads YAML 1.2 into plain data with line and column of each value. Built on PyYAML's parser events.

PyYAML's own loader accepts duplicate keys, reads `no` as false and `12:30:45` as 45045, expands aliases
without limit and leaks RecursionError and ValueError; so it is used for its grammar only.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from loop.base.documents.complaints import Document, Marks, Place, Position, dotted_path, quote
from loop.base.errors import Complaint, DefinitionError

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
PARSER: Any = getattr(yaml, "CLoader", yaml.Loader)
"""libyaml's parser where PyYAML was built with it: twenty times faster, the same events."""
NUMBER_FORMS = (
    (re.compile(r"[-+]?[0-9]+\Z"), int),
    (re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z"), float),
)
SPECIAL_SCALARS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
"""Plain scalars of the YAML 1.2 core schema that are not numbers or text."""
FORBIDDEN_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Control characters, lone surrogates, byte-order marks, and line ends that only some editors count."""


def load_yaml(source: Path | str, name: str | None = None) -> Document:
    """Read a YAML file or text, called `name` in messages. DefinitionError: not one plain YAML document."""
    if isinstance(source, Path):
        name = name or short_path(source)
        text = _read(source, name)
    else:
        name, text = name or "<text>", source.removeprefix("\ufeff")
    if bad_character := FORBIDDEN_CHARACTERS.search(text):
        position = _position_after(text[: bad_character.start()])
        got = f"the character U+{ord(bad_character[0]):04X}"
        raise _definition_error(name, position, "printable text", got)
    return _Builder(name, text).document()


def short_path(path: Path) -> str:
    """A path relative to the current folder if it is inside; else unchanged."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _read(path: Path, name: str) -> str:
    """Read a file as text. Raises DefinitionError if it is unreadable, no UTF-8, or above 1 MiB."""
    try:
        if path.exists() and not path.is_file():
            raise _definition_error(name, (1, 1), "a file", "a folder or a device")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _definition_error(name, (1, 1), "a file that can be read", str(reason)) from error
    if len(data) > MAX_BYTES:
        raise _definition_error(name, (1, 1), "at most 1 MiB", "a larger file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        position = _position_after(data[: error.start].decode(errors="replace"))
        got = f"byte 0x{data[error.start]:02x}"
        raise _definition_error(name, position, "UTF-8 text", got) from error


def _position_after(text: str) -> Position:
    """Line and column of the character that follows `text`, the beginning of a file."""
    lines = re.split(r"\r\n|\r|\n", text)
    return len(lines), len(lines[-1]) + 1


def _definition_error(name: str, position: Position, expected: str, got: str, path: str = "") -> DefinitionError:
    """The error for one mistake in file `name`. `path`: of the wrong value; empty: the whole file."""
    return DefinitionError([Complaint(name, *position, path, expected, got)])


def _events(name: str, text: str) -> Iterator[Any]:
    """Parser events of YAML text. Raises DefinitionError with the parser's message for bad grammar."""
    try:
        source = PARSER(text)
        while source.check_event():
            yield source.get_event()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and "quoted" in str(error.context):
            mark = error.context_mark  # An open quote is noticed at the end of the file.
        position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        is_tab = text.split("\n")[position[0] - 1][position[1] - 1 :].startswith("\t")
        got = "a tab: indent with spaces" if is_tab else error.problem or "a mistake in it"
        raise _definition_error(name, position, "YAML", got) from error
    except (ValueError, LookupError, RecursionError, OverflowError, yaml.YAMLError) as error:
        got = f"{type(error).__name__}: {error}"[:80]
        raise _definition_error(name, (1, 1), "YAML", got) from error


class _Builder:
    """Builds plain data from parser events and checks each event."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.events = name, _events(name, text)

    def document(self) -> Document:
        """The text's only document. Raises DefinitionError if there is none or a second one."""
        if not any(isinstance(event, yaml.DocumentStartEvent) for event in self.events):
            raise _definition_error(self.name, (1, 1), "a YAML document", "an empty file")
        data, marks = self._value(next(self.events), ())
        if data is None:
            raise _definition_error(self.name, (1, 1), "a YAML document", "an empty file")
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise self._complain(event, (), "one document", "a second one")
        return Document(self.name, data, marks)

    def _complain(self, event: Any, place: Place, expected: str, got: str) -> DefinitionError:
        """The error, to be raised by the caller, about the value at `place` that starts with `event`."""
        return _definition_error(self.name, _position_of(event), expected, got, dotted_path(place))

    def _value(self, event: Any, place: Place) -> tuple[Any, Marks | Position]:
        """The value at `place`, which starts with `event`, and the positions of it and all its parts."""
        self._refuse_references(event, place)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, place), _position_of(event)
        if len(place) >= MAX_DEPTH:
            expected = f"at most {MAX_DEPTH} levels"
            raise self._complain(event, place[:3], expected, "a deeper structure")
        marks = Marks(_position_of(event), {}, {})
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                number = len(items)
                value, marks.values[number] = self._value(event, (*place, number))
                items.append(value)
            return items, marks
        fields: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key = self._key(event, place)
            if key in fields:
                got = f"{quote(key)} again, first on line {marks.keys[key][0]}"
                raise self._complain(event, (*place, key), "each key once", got)
            marks.keys[key] = _position_of(event)
            fields[key], marks.values[key] = self._value(next(self.events), (*place, key))
        return fields, marks

    def _refuse_references(self, event: Any, place: Place) -> None:
        """Refuse aliases (they can expand exponentially), anchors, and tags (they construct objects)."""
        if isinstance(event, yaml.AliasEvent):
            got = f"the alias {quote(f'*{event.anchor}')}"
            raise self._complain(event, place, "a value written out", got)
        if event.anchor:
            got = quote("&" + event.anchor)
            raise self._complain(event, place, "a value without an anchor", got)
        if event.tag is not None:
            raise self._complain(event, place, "a value without a tag", quote(event.tag))

    def _key(self, event: Any, place: Place) -> str:
        """The text of a mapping's key. Raises DefinitionError for another type, or the merge key `<<`."""
        self._refuse_references(event, place)
        key = self._scalar(event, place) if isinstance(event, yaml.ScalarEvent) else {}
        if not isinstance(key, str) or (key == "<<" and not event.style):
            got = f"{quote(key)}; quote it if it is text"
            raise self._complain(event, place, "a word as a key", got)
        return key

    def _scalar(self, event: Any, place: Place) -> Any:
        """The value of a scalar: text if quoted (it has a `style` then), else by the YAML core schema."""
        text: str = event.value
        if event.style:
            # The file has been searched before, but an escape in quotes can produce one, too.
            if bad_character := FORBIDDEN_CHARACTERS.search(text):
                got = f"the character U+{ord(bad_character[0]):04X}"
                raise self._complain(event, place, "printable text", got)
            return text
        if text in SPECIAL_SCALARS:
            return SPECIAL_SCALARS[text]
        convert = next((convert for form, convert in NUMBER_FORMS if form.match(text)), None)
        if convert is None:
            return text
        try:
            number = convert(text)  # ValueError: Python reads no integer of more than 4,300 digits.
            if abs(number) <= sys.float_info.max:
                return number
        except ValueError:
            pass
        raise self._complain(event, place, "a number that a double can hold", quote(text))


def _position_of(event: Any) -> Position:
    """Line and column, from 1, where a part that the YAML parser reports (`event`) begins."""
    return event.start_mark.line + 1, event.start_mark.column + 1

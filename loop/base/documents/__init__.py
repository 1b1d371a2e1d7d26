"""Reads YAML into typed objects, each mistake with file, line and column; writes JSON atomically.

PyYAML's own loader accepts duplicate keys, reads `no` as false and `12:30:45` as 45045, expands
aliases without limit and leaks RecursionError and ValueError; so only its grammar is used."""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import yaml

from loop.base.errors import CONTROL_CHARACTERS, Complaint, DefinitionError, UsageError, WorkFailed

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_QUOTED = 60  # Maximum characters of a value in a message.
MAX_TEXT = 200  # Maximum characters of a path, or of `expected` or `got`, in a complaint.
Place = tuple[str | int, ...]  # Keys and indices that lead to a value.
Position = tuple[int, int]  # Line and column, from 1.
Hint = str | None  # What to do next.
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
"""Control characters, lone surrogates, byte-order marks, and line ends that few editors count."""
LINE_END = re.compile(r"\r\n|\r|\n")
T = TypeVar("T", bound="BaseModel")
EXPECTATION = re.compile(r"(?s)(?:Input should be|(?:Value error, )?expected) (.*?)(?:, got (.*))?")
"""Splits messages of pydantic and of our validators into `expected` and `got`."""
CHOICE_ERRORS = ("literal_error", "enum", "union_tag_invalid")
WHOLE_VALUE_ERRORS = (*CHOICE_ERRORS, "int_from_float", "too_short")  # Besides `*_type`.
_CONTROL_CHARACTERS = re.compile(CONTROL_CHARACTERS)
WRONG_PATH_ERRORS = (FileExistsError, FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""System errors that mean that the user named a wrong path."""
ADVICE = {
    errno.ENOSPC: "free space on {place}",
    errno.EDQUOT: "your quota is used up: free space on {place}",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`)",
    errno.EROFS: "make {place} writable again: its file system is read-only",
    errno.EACCES: "give yourself permission to write in {place}",
    errno.EPERM: "give yourself permission to write in {place}",
    errno.EIO: "look after the disk of {place}: it answers with errors",
    errno.ENOMEM: "free memory, or raise its limit (`ulimit -v`)",
    errno.EAGAIN: "end other processes, or raise their limit (`ulimit -u`)",
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "end other processes: the system has too many open files",
}
"""Error number of a failed machine to what to do next. `place`: the folder."""


def clip(text: str, length: int = MAX_QUOTED) -> str:
    """`text`, cut to `length` characters with `...` if it is longer."""
    return text if len(text) <= length else text[: length - 3] + "..."


def quote(value: Any) -> str:
    """A value for messages, in at most 60 characters: `'soon'`, `true`, `a list`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return clip(repr(value[: 2 * MAX_QUOTED]))
    if isinstance(value, int | float):
        return clip(repr(value))
    kind = type(value).__name__
    name = {"dict": "mapping", "tuple": "list"}.get(kind, kind)
    return f"a {name}" if value else f"an empty {name}"


@dataclass(frozen=True)
class Document:
    """Plain data of one YAML or JSON file, with positions of its values and of mappings' keys."""

    name: str
    data: Any = None
    values: Mapping[Place, Position] = field(default_factory=dict)
    keys: Mapping[Place, Position] = field(default_factory=dict)

    def position(self, place: Place, *, key: bool = False) -> Position:
        """Line and column of the value at `place`, or its `key`; if missing, of what has it."""
        if key and place in self.keys:
            return self.keys[place]
        while place and place not in self.values:
            place = place[:-1]
        return self.values.get(place, (1, 1))


def complain(
    document: Document, place: Place, expected: str, got: str, hint: Hint = None, key: bool = False
) -> Complaint:
    """Make a complaint about the value at `place`, or with `key` about that value's key."""
    line, column = document.position(place, key=key)
    path = ".".join(map(str, place))
    path, expected, got = (clip(text, MAX_TEXT) for text in (path, expected, got))
    return Complaint(document.name, line, column, path, expected, got, hint)


def did_you_mean(word: str, choices: Sequence[str]) -> str | None:
    """The hint `did you mean 'x'?` with the nearest other choice; None if none is similar."""
    if len(word) > MAX_TEXT:
        return None
    import difflib

    others = [choice for choice in choices if choice != word]
    similar = difflib.get_close_matches(word, others, n=1)
    return f"did you mean {similar[0]!r}?" if similar else None


def load_yaml(source: Path | str, name: str | None = None) -> Document:
    """Read a YAML file or text (`name` in messages). DefinitionError: not one plain document."""
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
    """Read a YAML file's text. DefinitionError: it is unreadable, no UTF-8, or above 1 MiB."""
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
    lines = LINE_END.split(text)
    return len(lines), len(lines[-1]) + 1


def _definition_error(
    name: str, position: Position, expected: str, got: str, place: Place = ()
) -> DefinitionError:
    """The error for one mistake in file `name`. `place`: of the value; empty: the whole file."""
    path = clip(".".join(map(str, place)), MAX_TEXT)
    return DefinitionError([Complaint(name, *position, path, expected, got)])


def _events(name: str, text: str) -> Iterator[Any]:
    """Parser events of YAML text. Raises DefinitionError, with the parser's message."""
    try:
        source = PARSER(text)
        while source.check_event():
            yield source.get_event()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if error.context_mark and "quoted" in str(error.context):
            mark = error.context_mark  # An open quote is noticed at the end of the file.
        position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        # libyaml says what is missing at the end of the text on a line after the last one.
        position = min(position, _position_after(text))
        is_tab = LINE_END.split(text)[position[0] - 1][position[1] - 1 :].startswith("\t")
        # libyaml: `did not find expected ',' or '}'`, mostly with a context, `while parsing ...`.
        problem = re.sub("(did|could) not find expected", "found no", error.problem or "not YAML")
        mistake = " ".join(filter(None, ("a mistake", error.context)))
        got = "a tab: indent with spaces" if is_tab else f"{mistake}: {problem}"
        raise _definition_error(name, position, "YAML", got) from error
    except (ValueError, LookupError, RecursionError, OverflowError, yaml.YAMLError) as error:
        got = f"{type(error).__name__}: {error}"[:80]
        raise _definition_error(name, (1, 1), "YAML", got) from error


class _Builder:
    """Builds plain data from parser events and checks each event."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.events = name, _events(name, text)
        self.values, self.keys = dict[Place, Position](), dict[Place, Position]()

    def document(self) -> Document:
        """The text's only document. Raises DefinitionError if there is none or a second one."""
        has_document = any(isinstance(event, yaml.DocumentStartEvent) for event in self.events)
        data = self._value(next(self.events), ()) if has_document else None
        if data is None:
            raise _definition_error(self.name, (1, 1), "a YAML document", "an empty file")
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise self._complain(event, (), "one document", "a second one")
        return Document(self.name, data, self.values, self.keys)

    def _complain(self, event: Any, place: Place, expected: str, got: str) -> DefinitionError:
        """The error, to be raised, about the value at `place` that starts with `event`."""
        return _definition_error(self.name, _position_of(event), expected, got, place)

    def _value(self, event: Any, place: Place) -> Any:
        """The value at `place`, which starts with `event`. Notes its position and its parts'."""
        self._refuse_references(event, place)
        self.values[place] = _position_of(event)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, place)
        if len(place) >= MAX_DEPTH:
            expected = f"at most {MAX_DEPTH} levels"
            raise self._complain(event, place[:3], expected, "a deeper structure")
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                items.append(self._value(event, (*place, len(items))))
            return items
        fields: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            self._refuse_references(event, place)
            key = self._scalar(event, place) if isinstance(event, yaml.ScalarEvent) else {}
            if not isinstance(key, str) or (key == "<<" and not event.style):  # `<<`: merge key.
                got = f"{quote(key)}; quote it if it is text"
                raise self._complain(event, place, "a word as a key", got)
            if key in fields:
                got = f"{quote(key)} again, first on line {self.keys[*place, key][0]}"
                raise self._complain(event, (*place, key), "each key once", got)
            self.keys[*place, key] = _position_of(event)
            fields[key] = self._value(next(self.events), (*place, key))
        return fields

    def _refuse_references(self, event: Any, place: Place) -> None:
        """Refuse aliases (they may expand exponentially), anchors, and tags (they make objects)."""
        is_alias = isinstance(event, yaml.AliasEvent)
        if event.anchor or event.tag is not None:
            got = quote(f"{'*' if is_alias else '&'}{event.anchor}" if event.anchor else event.tag)
            raise self._complain(event, place, "a value without an alias, an anchor or a tag", got)

    def _scalar(self, event: Any, place: Place) -> Any:
        """The value of a scalar: text if quoted (it has a `style`), else by YAML's core schema."""
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
        with contextlib.suppress(ValueError):  # Python reads no integer of more than 4,300 digits.
            number = convert(text)
            if abs(number) <= sys.float_info.max:
                return number
        raise self._complain(event, place, "a number that a double can hold", quote(text))


def _position_of(event: Any) -> Position:
    """Line and column, from 1, where a part that the YAML parser reports (`event`) begins."""
    return event.start_mark.line + 1, event.start_mark.column + 1


def parse(model: type[T], document: Document, place: Place = ()) -> T:
    """The part of a document at `place` (none: empty) as `model`. DefinitionError: all mistakes."""
    from pydantic import ValidationError

    data = document.data
    for step in place:
        data = data.get(step) if isinstance(data, dict) else data[step]
    data = {} if data is None and place else data
    try:
        # Strict JSON validation turns lists into tuples and text into dates, but accepts neither
        # text as a number nor true as an integer.
        text = json.dumps(data)
        return model.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        raise DefinitionError(_make_complaints(model, document, place, data, mistakes)) from error


def _make_complaints(
    model: type[T], document: Document, start: Place, data: Any, mistakes: list[Any]
) -> list[Complaint]:
    """One complaint for each wrong value, in file order. `mistakes`: pydantic's, about `data`, the
    part of the document at `start`, as `model`. It reports one for each branch of a union. Those
    that refuse a whole value are one complaint; none, if a branch finds a mistake in that value."""
    groups: dict[tuple[Place, Any], list[Any]] = {}  # Errors of one place, and location in it.
    for mistake in mistakes:
        kind = mistake["type"]
        is_about_whole_value = kind.endswith("_type") or kind in WHOLE_VALUE_ERRORS
        location = None if is_about_whole_value else mistake["loc"]
        groups.setdefault((_place_of_mistake(data, mistake), location), []).append(mistake)
    enclosing_places = {place[:end] for place, _ in groups for end in range(len(place))}
    located = []
    for (place, location), group in groups.items():
        if location is None and place in enclosing_places:
            continue
        first = group[0]
        is_key = first["type"] == "extra_forbidden" or first["loc"][-1:] == ("[key]",)
        full_place = (*start, *place)
        located.append((document.position(full_place, key=is_key), full_place, is_key, group))
    complaints: list[Complaint] = []
    for _, place, is_key, group in sorted(located, key=lambda entry: entry[0]):
        expected, got, wrong_word, choices = _describe_mistakes(model, group)
        # Finding a hint is slow: only complaints that will be shown get one.
        needs_hint = len(complaints) < DefinitionError.MAX_SHOWN and isinstance(wrong_word, str)
        hint = did_you_mean(wrong_word, choices) if needs_hint else None
        complaints.append(complain(document, place, expected, got, hint, key=is_key))
    return complaints


def _place_of_mistake(data: Any, mistake: Any) -> Place:
    """Keys and indices of an error's place in `data`. Its `loc` also names branches of unions, left
    out here: ("run", 0) of ("run", "tuple", 0). Of a missing field: the place of what lacks it."""
    place: list[str | int] = []
    # Of a missing field, the last part is its name.
    for part in mistake["loc"][:-1] if mistake["type"] == "missing" else mistake["loc"]:
        is_key = isinstance(data, dict) and part in data
        if is_key or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]
            place.append(part)
    if mistake["type"] == "union_tag_invalid":
        place.append(mistake["ctx"]["discriminator"].strip("'"))
    return tuple(place)


def _describe_mistakes(model: type[T], mistakes: list[Any]) -> tuple[str, str, Any, Sequence[str]]:
    """(expected, got, wrong word, possible words) for the pydantic errors about one place.
    The last two are for a hint; None and empty where there can be none."""
    from loop.base.documents.schemas import known_fields

    first = mistakes[0]
    kind, value = first["type"], first["input"]
    choices: list[str] = []
    if kind in ("missing", "union_tag_not_found"):
        name = repr(first["loc"][-1]) if kind == "missing" else first["ctx"]["discriminator"]
        return f"a value for {name}", "nothing", None, ()
    if kind == "extra_forbidden":
        name = str(first["loc"][-1])
        return "a known name", quote(name), name, known_fields(model)
    if kind == "union_tag_invalid":
        value, expected = first["ctx"]["tag"], first["ctx"]["expected_tags"]
        choices = re.findall(r"'([^']*)'", expected)
        return f"one of {expected}", quote(value), value, choices
    matches: list[re.Match[str]] = []
    for mistake in mistakes:
        if mistake["type"] in CHOICE_ERRORS:
            choices += re.findall(r"'([^']*)'", mistake["ctx"]["expected"])
        if match := EXPECTATION.fullmatch(mistake["msg"]):
            matches.append(match)
    if not matches:
        text = first["msg"].removeprefix("Value error, ")
        return "what fits", f"{quote(value)}: {text}", value, choices
    expected = " or ".join(dict.fromkeys(match[1] for match in matches))
    return expected, matches[0][2] or quote(value), value, choices


def write_atomic(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write a file atomically: readers see the old or the new content. It is on disk at return.

    Follows links; writes directly to devices and pipes; keeps the mode of an existing file.
    `durable`: False skips the wait for the disk; the file may then be lost in a power failure.
    Raises LoopError when the write fails; the old file is then unchanged."""
    # Only our JSON can contain lone surrogates. A backslash escape means the same in JSON.
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    folder = folder_for_temporary(path)
    temporary = (folder or Path()) / f".{os.urandom(8).hex()}.tmp"
    try:
        if folder is None:
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise FileExistsError(errno.ELOOP, "it is a link to itself")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        os.replace(temporary, target)
        if durable:
            handle = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        raise file_error(path, "written", error) from error
    finally:
        if folder is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def folder_for_temporary(path: Path) -> Path | None:
    """Folder to prepare the replacement of `path` in; None for a device or pipe: write into it."""
    if path.is_char_device() or path.is_fifo() or path.absolute().is_relative_to("/dev"):
        return None
    return Path(os.path.realpath(path)).parent


def file_error(
    path: Path, attempt: Literal["read", "written", "made"], error: OSError, hint: str | None = None
) -> UsageError | WorkFailed:
    """UsageError for a failed read or a wrong path, else WorkFailed. No `hint`: by the error
    number. Sets a missing `error.filename`: `find_machine_failure` looks at that file's folder."""
    error.filename = error.filename or str(path)
    reason = error.strerror or str(error) or type(error).__name__
    kind = UsageError if attempt == "read" or isinstance(error, WRONG_PATH_ERRORS) else WorkFailed
    advice = ADVICE.get(error.errno or 0, "").format(place=path.parent)
    return kind(f"{path}: cannot be {attempt}: {reason}", hint=hint or advice or None)


def to_json(value: Any, indent: int | None = 1) -> str:
    """JSON and a line end; `indent` None: in one line. NaN is null. Escapes control characters."""
    text = json.dumps(to_plain(value), indent=indent, ensure_ascii=False)
    return _CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def to_plain(value: Any) -> Any:
    """Convert `value` to dicts, lists, scalars of JSON: NaN, infinity to None, others to text."""
    if hasattr(value, "model_dump"):
        return to_plain(value.model_dump(mode="json", by_alias=True))
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def content_hash(content: str | bytes | Iterable[str | bytes]) -> str:
    """SHA-256 (hex) of one content, or of several in order, each with its length."""
    digest, is_single = hashlib.sha256(), isinstance(content, str | bytes)
    for part in [content] if isinstance(content, str | bytes) else content:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        if not is_single:
            digest.update(b"%d:" % len(data))  # Else ("ab", "c") would equal ("a", "bc").
        digest.update(data)
    return digest.hexdigest()


def hash_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 (hex) of contents and names below `root`, in any order. LoopError: unreadable."""
    parts: dict[str, bytes] = {}
    for path in paths:
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise file_error(path, "read", error) from error
        parts[path.relative_to(root).as_posix()] = digest
    return content_hash(part for pair in sorted(parts.items()) for part in pair)

"""YAML files: accepted and refused text with positions; the schema for editors."""

from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import Field

from loop.base.documents import load_yaml
from loop.base.documents.schemas import schema_of
from loop.base.errors import DefinitionError
from loop.model.base import Model
from loop.model.plan import Pattern, Plan
from loop.model.target import Target

ONCE, TAG, KEY = "each key once", "a value without an alias, an anchor or a tag", "a word as a key"
BAD = [
    ("", "1:1", "a YAML document, got an empty file"),
    ("a: 1\na: 2\n", "2:1", f"a: expected {ONCE}, got 'a' again, first on line 1"),
    ("a: &x 1\nb: *x\n", "1:4", f"a: expected {TAG}, got '&x'"),
    ("a: !!python/object/apply:os.system [x]\n", "1:4", TAG),
    ("a: 1\n---\nb: 2\n", "2:1", "one document, got a second one"),
    ("1: a\n", "1:1", f"{KEY}, got 1"),
    ("x: 1\na: 'open\nb: 2\n", "2:4", "expected YAML, got "),
    ('a: "\\0"\n', "1:4", "a: expected printable text, got the character U+0000"),
    ('a: "\\e[31m"\n', "1:4", "U+001B"),
    ('a: "\\u2028"\n', "1:4", "U+2028"),
    ("a:\n\tb: 1\n", "2:1", "a tab"),
    ("a:\n  -\tb: 1\n", "2:4", "a tab"),
    ("a:\n  b: 1\n c: 2\n", "3:2", "expected YAML, got "),
    ("a: @b\n", "1:4", "expected YAML, got "),
    ("a: 1e999\n", "1:4", "a number that a double can hold, got '1e999'"),
    (f"a: {'9' * 5000}\n", "1:4", "a number that a double can hold, got '9999"),
    (f"a: 0x{'f' * 400}\n", "1:4", "a number that a double can hold"),
    ("a: {", "1:5", "expected YAML, got "),
    ("a: {b: 1\nc: 2\n", "2:2", "got a mistake while parsing a flow mapping: "),
    ("a: b: c\n", "1:5", "got a mistake: "),
    ("a:\n- [b, ", "2:7", "expected YAML, got "),
    ("a: 1\rb: [", "2:5", "expected YAML, got "),
    ("key:\n12:30:45", "2:9", "expected YAML, got "),
    ("a: \x00\n", "1:4", "printable text, got the character U+0000"),
    ("a: b\ufeffc\n", "1:5", "U+FEFF"),
    ("[" * 41 + "]" * 41, "1:41", "at most 40 levels, got a deeper structure"),
]


@pytest.mark.parametrize(("text", "position", "words"), BAD)
def test_a_bad_file_is_refused_with_line_and_column(text: str, position: str, words: str) -> None:
    """Each mistake is one complaint `file:line:col: path: expected ..., got ...`."""
    with pytest.raises(DefinitionError) as refused:
        load_yaml(text, "x.yaml")
    message = refused.value.message
    assert message.startswith(f"x.yaml:{position}: ")
    assert words in message
    assert "expected " in message
    assert ", got " in message
    assert "got did not" not in message


SCALARS = [
    ("no", "no"),
    ("true", True),
    ("null", None),
    ("", None),
    ("017", 17),
    ("0x1F", 31),
    ("1_000", "1_000"),
    ("1e-3", 0.001),
    (".5", 0.5),
    ("-", None),
    (".inf", float("inf")),
    ("12:30:45", "12:30:45"),
    ("2026-11-21", "2026-11-21"),
    ("'1'", "1"),
    ('"true"', "true"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    """Only true and false are booleans, times and dates are text, `1e-3` is a number."""
    if text == "-":
        value = [None]
        parsed = load_yaml("-", "x").data
    else:
        parsed = load_yaml(f"a: {text}\n", "x").data["a"]
    assert (value, type(value)) == (parsed, type(parsed))


def test_values_and_keys_know_their_positions() -> None:
    """Lines and columns count from 1; a missing value has the position of its parent."""
    text = "name: x\nsteps:\n  - id: a\n    run: [one, two]\n"
    document = load_yaml(text, "x")
    assert {"name": "x", "steps": [{"id": "a", "run": ["one", "two"]}]} == document.data
    assert (1, 1) == document.position(())
    assert (1, 7) == document.position(("name",))
    assert (1, 1) == document.position(("name",), key=True)
    assert (3, 5) == document.position(("steps", 0))
    assert (4, 16) == document.position(("steps", 0, "run", 1))
    assert (4, 5) == document.position(("steps", 0, "run"), key=True)
    assert (3, 5) == document.position(("steps", 0, "missing", "deeper"))
    assert (3, 3) == document.position(("steps", 7))


def test_what_is_no_readable_text_file_is_refused(tmp_path: Path) -> None:
    """Absent, a folder, not UTF-8, too large: each is a complaint about the file."""
    binary, large = tmp_path / "binary.yaml", tmp_path / "large.yaml"
    binary.write_bytes(b"a: 1\nb: \xc3\xa9 \xff\n")
    large.write_bytes(b"#" * ((1 << 20) + 1))
    expected = {
        tmp_path / "absent.yaml": ":1:1: expected a file that can be read, got No such file or directory",
        tmp_path: ":1:1: expected a file, got a folder or a device",
        Path("/dev/zero"): ":1:1: expected a file, got a folder or a device",
        Path("a\0b"): ":1:1: expected a file",
        binary: ":2:6: expected UTF-8 text, got byte 0xff",
        large: ":1:1: expected at most 1 MiB, got a larger file",
    }
    for path, words in expected.items():
        with pytest.raises(DefinitionError) as refused:
            load_yaml(path)
        assert words in refused.value.message


class Blue(Model):
    """A kind."""

    kind: Literal["blue"]
    """Says blue."""
    depth: int = 1
    """How deep."""


class Picture(Model):
    """Names that look like keywords, pairs, references."""

    discriminator: str = ""
    """A field, not a keyword."""
    prefix: tuple[int, str] = (1, "a")
    arguments: dict[str, Any] = Field(default_factory=dict, alias="$defs")
    """Known as $defs in files."""
    colours: dict[str, Annotated[Blue, Field()]] = Field(default_factory=dict)
    first: Blue = Blue(kind="blue")
    """The first one."""


@pytest.mark.parametrize("model", [Pattern, Plan, Target, Picture])
def test_a_schema_is_valid(model: type[Model]) -> None:
    """It passes the meta-schema."""
    jsonschema.Draft202012Validator.check_schema(schema_of(model))


def test_fields_are_described_by_their_docstrings() -> None:
    """A field that is a reference is described too."""
    schema = schema_of(Picture)
    assert "Known as $defs in files." == schema["properties"]["$defs"]["description"]
    assert "The first one." == schema["properties"]["first"]["description"]
    assert "How deep." == schema["$defs"]["Blue"]["properties"]["depth"]["description"]

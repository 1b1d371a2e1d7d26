"""What commands print stays readable for programs that were written for an earlier version."""

import copy
import json
from typing import Any

import pytest

from loop.cli.checking import PRINTED, schema_text
from tests.cli.older_readers import older, unreadable, version

OLDER = older()
NOW = json.loads(schema_text(PRINTED))


@pytest.mark.parametrize("words", OLDER["properties"])
def test_an_older_reader_still_reads(words: str) -> None:
    """No field is gone, renamed, or of another type, unless `schema_version` says so."""
    old, new = OLDER["properties"][words], NOW["properties"][words]
    risen = version(new, NOW) > version(old, OLDER)
    assert risen or [] == list(unreadable(old, new, (OLDER, NOW), words))


def changed(definition: str, name: str, field: dict[str, Any] | None) -> list[str]:
    """Where a reader stumbles when a field of today's answers becomes another, or goes."""
    new = copy.deepcopy(NOW)
    properties = new["definitions"][definition]["properties"]
    if field is None:
        del properties[name]
    else:
        properties[name] = field
    return [
        line
        for words, old in OLDER["properties"].items()
        if version(old, OLDER) == version(NOW["properties"][words], NOW)
        for line in unreadable(old, new["properties"][words], (OLDER, new), words)
    ]


def test_a_change_that_breaks_readers_is_found() -> None:
    """A field that goes, changes its type, may be null, or gets another value; one that is new is fine."""
    assert ["kernels header.path: gone"] == changed("HeaderPath", "path", None)
    assert ["kernels header.path: integer where string was"] == changed("HeaderPath", "path", {"type": "integer"})
    null = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert ["kernels header.path: null where string was"] == changed("HeaderPath", "path", null)
    said = changed("Replayed", "verdict", {"type": "string", "enum": ["same", "alike"]})
    assert [
        "sessions replayed.verdict: ['same', 'alike'] where ['same', 'not the same', 'cannot tell'] was"
    ] == said
    assert [] == changed("HeaderPath", "version", {"type": "string"})

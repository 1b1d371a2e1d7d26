"""A whole optimisation through the protocol: tools, the SDK's client, and edits of a kernel in C++."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.driving.clients import Agent, drive
from tests.noise import timed
from tests.optimize.test_session import SIZES, commit_plan
from tests.projects import KERNEL, loop, make_project

FAST = KERNEL.replace("const float *x = in[0].data;", "const float *x = static_cast<const float *>(in[0].data);")
FAST = FAST.replace("float *y = out[0].data;", "float *y = static_cast<float *>(out[0].data);")
LINE = "for (int64_t i = 0; i < n; i++) y[i] = x[i] * (float)attributes[0];"
SLOW = FAST.replace(LINE, f"for (volatile int again = 0; again < 40; again = again + 1) {LINE}")
WRONG = FAST.replace("i < n", "i < n - 1")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel in C++ that does its work forty times, under git and not trusted."""
    folder = make_project(tmp_path / "project")
    (folder / "scale.c").unlink()
    (folder / "scale.cpp").write_text(SLOW)
    text = (folder / "target.yaml").read_text().replace(*SIZES)
    (folder / "target.yaml").write_text(text.replace("scale.c]", "scale.cpp]").replace("gcc", "g++"))
    commit_plan(folder)
    return folder


def asked_of(job: dict[str, Any]) -> dict[str, Any]:
    """The brief of the change that a job waits for; the file has its original text."""
    brief: dict[str, Any] = json.loads(Path(job["result"]["brief"]).read_text())
    assert ["scale.cpp"] == brief["files"]
    assert SLOW == (Path(brief["folder"]) / "scale.cpp").read_text()
    return brief


@timed
@pytest.mark.slow
def test_one_change_is_taken_back_and_one_is_kept(kernel: Path) -> None:
    """A person trusts the target; the agent edits by the brief and gets verdicts; the checkout stays as it was."""

    async def story(agent: Agent) -> None:
        ok, reply = await agent.asked("run_session", plan="improve", wait_s=50)
        assert (False, "untrusted") == (ok, reply["error"]["code"])
        assert f"loop trust {kernel}" in reply["error"]["next"]
        assert 0 == loop("trust", str(kernel)).returncode  # The person's command.

        assert {"ours"} == set((await agent.answer("kernels_list"))["variants"])
        job = await agent.ended("run_session", plan="improve")
        session = job["session"]
        assert 75 == job["exit_code"]
        assert job["next"].endswith(f", then run_session with resume={session}")
        brief = asked_of(job)

        (Path(brief["folder"]) / "scale.cpp").write_text(WRONG)
        checked = await agent.ended("kernels_check", target=brief["folder"], device="cpu")
        assert (1, "failed") == (checked["exit_code"], checked["result"]["status"])
        brief = asked_of(await agent.ended("run_session", resume=session))
        assert ["reverted"] == [change["outcome"] for change in brief["tried"]]

        (Path(brief["folder"]) / "scale.cpp").write_text(FAST)
        checked = await agent.ended("kernels_check", target=brief["folder"], variants=["ours"])
        assert 0 == checked["exit_code"]
        await agent.ended("run_session", resume=session)
        done = await agent.ended("run_session", resume=session, decline=True)
        assert (0, "ended", "passed") == (done["exit_code"], done["state"], done["result"]["status"])
        judged = done["result"]["changes"]["judged"]
        assert ["reverted", "kept"] == [change["outcome"] for change in judged]
        assert 2 < judged[1]["gain"]
        assert any("profile-before-optimise" in note for note in agent.notes)
        assert SLOW == (kernel / "scale.cpp").read_text()

    drive(story, kernel)

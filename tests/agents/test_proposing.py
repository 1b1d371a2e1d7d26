"""One run of a proposer: what it can read, how it ends, what it costs; no process is left."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from loop.agents import proposing
from loop.agents.proposing import (
    Preset,
    ProposerTask,
    fill_placeholders,
    find_preset,
    kill_new_orphans,
    read_ai_use,
    refuse_unready,
    run_proposer,
)
from loop.base.errors import UsageError
from loop.base.places import PACKAGE
from loop.base.processes import run_to_end
from loop.model.campaign import Campaign, Proposal
from loop.model.money import AiUse
from loop.store.sessions import SessionFolder
from tests.projects import add_commands, loop, make_project


def errand(folder: Path, command: str, *, limit_s: float = 20.0, **fields: object) -> tuple[Proposal, str]:
    """Run a command as a proposer in a folder; its result, and its output."""
    page, printed = folder / "0001-brief.md", folder / "0001-1.txt"
    page.write_text("make ours faster\n")
    campaign = Campaign.model_validate({"proposer": command, **fields})
    sent = ProposerTask(1, campaign, page, folder, folder, folder / "locks", printed, limit_s)
    return run_to_end(run_proposer(sent)), printed.read_text()


def test_a_proposer_reads_the_brief_and_its_places(tmp_path: Path) -> None:
    """The brief is on its standard input, and the braces are filled, quoted."""
    _, printed = errand(tmp_path, "cat; echo {workdir} {brief} {json}")
    assert "make ours faster" in printed
    assert f"{tmp_path} {tmp_path}/0001-brief.md {tmp_path}/0001-brief.json" in printed
    assert "'/a b/c' $HOME {x}" == fill_placeholders("{workdir} $HOME {x}", {"workdir": "/a b/c"})


def test_it_sees_no_secret_but_those_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is an allow-list; `--env` adds one."""
    monkeypatch.setenv("SECRET_A", "a-secret")
    monkeypatch.setenv("SECRET_B", "b-secret")
    _, printed = errand(tmp_path, "env", env=("SECRET_B",))
    assert (False, True) == ("a-secret" in printed, "b-secret" in printed)


@pytest.mark.slow
def test_one_that_ignores_term_is_gone_after_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After TERM comes KILL, for the proposer and its children."""
    monkeypatch.setattr(proposing, "END_LIMIT_S", 0.2)
    begun = time.monotonic()
    result, _ = errand(tmp_path, "trap '' TERM; sleep 300 & echo $! > kid; while :; do sleep 1; done", limit_s=2.0)
    assert ("deadline", True) == (result.ended, time.monotonic() - begun < 60)
    assert not psutil.pid_exists(int((tmp_path / "kid").read_text()))


def test_one_that_prints_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end comes after a time without output."""
    monkeypatch.setattr(proposing, "END_LIMIT_S", 0.1)
    assert "stalled" == errand(tmp_path, "echo begun; sleep 300", quiet_minutes=0.005)[0].ended


def test_a_daemon_without_parent_and_environment_is_swept(tmp_path: Path) -> None:
    """A daemon that left its group and cleared its environment is reparented to `loop`, and killed."""
    code = (
        "import os,sys,time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "open('pid','w').write(str(os.getpid()))\n"
        "os.execve('/bin/sleep',['sleep','300'],{})"
    )
    (tmp_path / "daemon.py").write_text(code)
    with kill_new_orphans():
        errand(tmp_path, f"{sys.executable} daemon.py; while [ ! -s pid ]; do sleep 0.01; done; sleep 0.2")
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize(
    ("command", "ended"),
    [
        ("echo 'no quota left' >&2; exit 3", "failed"),
        ("echo 'Invalid API key. Please run /login'; exit 1", "login"),
        ("echo '{\"done\": true}' > {answer}", "done"),
        ("echo '{\"done\": 1' > {answer}", "edited"),
        ("true", "edited"),
    ],
)
def test_how_it_ended_is_told_apart(command: str, ended: str, tmp_path: Path) -> None:
    """An error, a missing login and "done" are told apart; an invalid answer counts as none."""
    assert ended == errand(tmp_path, command)[0].ended


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"proposer": "no-such-program-here {brief}"}, "no program `no-such-program-here`"),
        ({"proposer": "  "}, "no command"),
        ({"proposer": "sh 'x"}, "No closing quotation"),
        ({"proposer": "sh propose.sh", "usd": 2.0}, "does not say what it costs"),
        ({"proposer": "sh propose.sh {breif}"}, "nothing is put in the place of {breif}"),
    ],
)
def test_what_cannot_begin_or_certainly_end_is_refused(fields: dict[str, object], message: str) -> None:
    """Refused are no program, and only a limit in dollars for a proposer whose cost is unknown."""
    with pytest.raises(UsageError, match=message):
        refuse_unready(Campaign.model_validate(fields))
    refuse_unready(Campaign(proposer="sh propose.sh", usd=2.0, candidates=3))


def run_as(preset: Preset, place: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Output of a shell script that runs as this proposer does."""
    for name in ("root", "locks", "notes"):
        (place / name).mkdir()
    (place / "notes" / "brief.md").write_text("the brief")
    (place / "secret").write_text("a secret")
    words = proposing.isolation_command(*(place / name for name in ("root", "locks", "notes")), preset)
    return subprocess.run([*words, "sh", "-c", script], capture_output=True, text=True, cwd=place, check=False)


@pytest.mark.skipif(not proposing.can_isolate(), reason="needs bwrap")
def test_a_known_program_sees_what_it_needs_and_no_secret(tmp_path: Path) -> None:
    """It can read the brief and loop, and write to its folder and the locks only."""
    script = f"cat {tmp_path}/notes/brief.md {tmp_path}/secret; ls {PACKAGE}/cli"
    shell = run_as(find_preset("claude"), tmp_path, f"{script}; touch root/a locks/b; echo x > notes/brief.md")
    assert "the brief" in shell.stdout
    assert "__init__.py" in shell.stdout
    assert "a secret" not in shell.stdout
    assert ["a", "b"] == [path.name for name in ("root", "locks") for path in (tmp_path / name).iterdir()]
    assert "the brief" == (tmp_path / "notes" / "brief.md").read_text()


def test_a_command_of_the_users_own_is_not_isolated(tmp_path: Path) -> None:
    """A command of the user runs without isolation, because its files are unknown; the report says so."""
    assert "a secret" == run_as(find_preset("sh propose.sh"), tmp_path, f"cat {tmp_path}/secret").stdout


OPUS, GPT = "claude-opus-4-6", "gpt-5"

FINAL = {
    "type": "result",
    "subtype": "success",
    "total_cost_usd": 0.5134,
    "usage": {"input_tokens": 40, "output_tokens": 900, "cache_read_input_tokens": 7000},
    "modelUsage": {
        OPUS: {"inputTokens": 40, "outputTokens": 900, "cacheReadInputTokens": 7000, "costUSD": 0.5},
        "claude-haiku-4-5": {"inputTokens": 500, "outputTokens": 20, "costUSD": 0.0134},
    },
}


def read(*objects: Any) -> AiUse:
    """The AI use that an agent's output states."""
    use = read_ai_use("\n".join(item if isinstance(item, str) else json.dumps(item) for item in objects))
    assert use is not None
    return use


def test_the_agents_own_total_stands_unless_it_is_zero() -> None:
    """The agent knows its prices; a total of 0 for 7,940 tokens counts as unknown."""
    use = read(FINAL)
    assert (0.5134, "result", ("claude-code",)) == (use.usd, use.source, use.agents)
    assert [(OPUS, 7940), ("claude-haiku-4-5", 520)] == [(model.model, model.tokens) for model in use.models]
    assert () == use.unpriced
    use = read({"total_cost_usd": 0, "model": OPUS, "usage": FINAL["usage"]})
    assert (None, (OPUS,)) == (use.usd, use.unpriced)


def test_turns_of_codex_add_up_and_have_no_price() -> None:
    """1,000 read each, also from a cache, 100 written; its model is named in some versions only."""
    usage = {"input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 100}
    turn = {"type": "turn.completed", "usage": usage}
    (model,) = read({"type": "thread.started", "model": GPT}, turn, turn).models
    assert (GPT, 2200, None) == (model.model, model.tokens, model.usd)
    assert (None, ("a model without a name",)) == (read(turn).usd, read(turn).unpriced)


@pytest.mark.parametrize(
    "printed",
    [
        "",
        '{"answer": 42}',
        '{"total_cost_usd": "much"}',
        '{"total_cost_usd": NaN}',
        '{"usage": {"input_tokens": -4}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_result_states_nothing(printed: str) -> None:
    """Text without a result, or with an invalid number, gives no AI use."""
    assert None is read_ai_use(printed)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A trusted project whose plan `try` is two commands."""
    folder = make_project(tmp_path / "project")
    add_commands(folder, "try", ["true", "true"])
    assert 0 == loop("trust", str(folder)).returncode
    return folder


def bill(folder: Path, *words: str) -> dict[str, Any]:
    done = loop("run", "session", "try", "--target", str(folder), *words)
    assert 0 == done.returncode, done.stderr
    (session,) = (folder.parent / "sessions").iterdir()
    return json.loads((session / "record.json").read_text())["bill"]


@pytest.mark.slow
def test_ai_that_nobody_told_of_is_unknown(project: Path) -> None:
    """Its cost is unknown, not zero; the reason names the option that states it."""
    totals = bill(project)
    assert [] == [charge for charge in totals["charges"] if charge["resource"] == "ai"]
    (reason,) = [gap["reason"] for gap in totals["unmeasured"] if gap["resource"] == "ai"]
    assert "--ai-usd" in reason
    assert "- AI: not measured (" in loop("report", "last", "--target", str(project)).stdout
    shown = json.loads(loop("cost", "show", "--json", "--target", str(project)).stdout)
    assert None is shown["totals"]["ai_usd"]


def test_an_agent_s_own_result_goes_before_somebody_s_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results add up; a stated amount counts where no result has a cost."""
    folder = SessionFolder(tmp_path)
    proposing.save_stated_cost(folder, proposing.check_stated_usd(0.75))
    use = AiUse(source="result", agents=("codex",), usd=None, unpriced=("gpt",))
    proposals = [Proposal(number=1, ended="edited", use=use)]
    monkeypatch.setattr(proposing, "read_proposals", lambda folder: proposals)
    use, _ = proposing.read_session_use(folder)
    assert use is not None
    assert ("stated", 0.75, ()) == (use.source, use.usd, use.unpriced)
    for usd in (0.25, 0.125):
        use = AiUse(source="result", agents=("claude-code",), usd=usd)
        proposals.append(Proposal(number=2, ended="edited", use=use))
    use, _ = proposing.read_session_use(folder)
    assert use is not None
    assert ("result", 0.375, ("codex", "claude-code")) == (use.source, use.usd, use.agents)

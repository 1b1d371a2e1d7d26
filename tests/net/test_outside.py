"""The net: behaviour that a user sees from outside, so that the inside may be rebuilt.

Real commands take one project through its life. `outside.json` holds, for each command, its exit code; where
`--json` was asked, also the paths of the keys; and facts that no rebuilding may change: verdicts, commits, places.
Speed is left out, because this kernel takes a microsecond.

    LOOP_GOLDEN=write pytest tests/net/test_outside.py     # after a change that is meant; look at the diff
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.projects import KERNEL, LOOP, TARGET

GOLDEN = Path(__file__).with_name("outside.json")
WRONG = KERNEL.replace("i < n;", "i < n - (n % 17 == 0);")
TYPO = TARGET.replace("signature:", "signatur:")
JOURNEY = """
unknown command: kernels verfy
unknown variant: kernels verify orus --target {project}
unknown plan: run session quik --target {project}
unknown pattern: patterns show nonesuch
no target: kernels list --target {project}/none
patterns: patterns list --json
pattern: patterns show baseline-first --json
check of patterns: patterns check --json
plans: plan list --json
doctor: doctor --json
variants: kernels list --target {project} --json
not trusted: kernels verify ours --target {project} --json
trust: trust {project}
verify: kernels verify ours --target {project} --json
check: kernels check ours --target {project} --json
measure: kernels measure ours --target {project} --json
dry run: run session quick --target {project} --dry-run --json
session: run session quick --target {project} --json
status: status --target {project} --json
next: plan next --target {project} --json
+wrong
verify of wrong: kernels verify ours --target {project} --json
check of wrong: kernels check ours --target {project} --json
bisect: bisect --good HEAD~2 --metric correctness --variant ours --target {project} --json
session of wrong: run session quick --target {project} --json
status of wrong: status --target {project} --json
next after wrong: plan next --target {project} --json
report as json: report last --format json
report as summary: report last --format summary
report as html: report last --format html --output {project}/report.html
sessions: sessions list --json
one session: sessions show last --json
compared: sessions compare last~1 last --json
resume of what ended: run session --resume last
costs: cost show --json
rates: cost rates --json
jobs: jobs --json
hosts: hosts --json
cache: clean --cache --json
leftovers: clean --json
+mended
check of mended: kernels check ours --target {project} --json
session of mended: run session quick --target {project} --json
status of mended: status --target {project} --json
+typo
malformed manifest: kernels list --target {project}
malformed manifest, as json: kernels list --target {project} --json
"""
"""A name, a colon, and the words after `loop`; `+` commits a change of the project."""
SPEEDS = ("faster", "slower", "inconclusive", "same")
VALUES = re.compile(r"^(status|verdict|state|passed|ready|right|exit_code|variant|code|commit|culprit)$")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Exit codes, keys and facts of all commands of the journey."""
    folder = tmp_path_factory.mktemp("net")
    project = folder / "project"
    project.mkdir()
    environment = {
        **os.environ,
        **{f"LOOP_{name}": str(folder / name.lower()) for name in ("CACHE", "STATE", "SESSIONS")},
        "COLUMNS": "80",
    }
    texts = {
        "target.yaml": TARGET.replace("  small:", "  quick: [{N: 2, M: 8}]\n  small:").replace(
            "M: [5, 17]", "M: [5, 17, 40]"
        ),
        "functions.py": "def scale(x, *, factor):\n    return x * factor\n",
        "scale.c": KERNEL,
    }
    _commit(project, texts, "good")
    _commit(project, {"notes.md": "a note\n"}, "notes")
    changes = {
        "+wrong": {"scale.c": WRONG},
        "+mended": {"scale.c": KERNEL + "/* mended */\n"},
        "+typo": {"target.yaml": TYPO},
    }
    came: dict[str, Any] = {}
    for line in JOURNEY.strip().splitlines():
        if line in changes:
            _commit(project, changes[line], line[1:])
            continue
        name, _, words = line.partition(": ")
        command = [*LOOP, *words.format(project=project).split()]
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        came[name] = {"exit": done.returncode, **_facts(words, done, project)}
    return came


def _commit(project: Path, texts: dict[str, str], message: str) -> None:
    for name, text in texts.items():
        (project / name).write_text(text)
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(project)]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", message]):
        subprocess.run([*git, *words], check=True)


def _facts(words: str, done: subprocess.CompletedProcess[str], project: Path) -> dict[str, Any]:
    if "--json" not in words and "--format json" not in words:
        text = (done.stdout + done.stderr).replace(str(project), "PROJECT")
        return {"places": sorted(set(re.findall(r"[\w/.-]+\.(?:yaml|c|py):\d+:\d+", text)))}
    log = subprocess.run(
        ["git", "-C", str(project), "log", "--format=%H %s"], capture_output=True, text=True, check=True
    )
    text = done.stdout
    for line in log.stdout.splitlines():
        text = re.sub(f"{line[:12]}[0-9a-f]*", f"commit '{line[41:]}'", text)
    answer = json.loads(text)
    return {"keys": sorted(set(_paths(answer, 3))), "values": sorted(set(_values(answer)))}


def _paths(value: Any, depth: int, path: str = "") -> Iterator[str]:
    """The keys of an answer, with those of the objects below; items of a list are one."""
    if isinstance(value, list):
        for item in value:
            yield from _paths(item, depth, path + "[]")
    elif isinstance(value, dict) and depth:
        for key, item in value.items():
            name = key if re.fullmatch(r"[a-z_0-9]+", key) else "*"
            yield f"{path}.{name}".lstrip(".")
            if name != "late":  # Steps are late as the machine has it.
                yield from _paths(item, depth - 1, f"{path}.{name}")


def _values(value: Any, key: str = "") -> Iterator[str]:
    """The facts of an answer: words and truths under the keys that hold a verdict."""
    if isinstance(value, list):
        for item in value:
            yield from _values(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _values(item, name)
    elif key == "verdict" and value in SPEEDS:
        yield "verdict: of speed"
    elif VALUES.match(key) and (isinstance(value, bool) or re.match(r"[\w ]+$|commit '", str(value))):
        yield f"{key}: {value}"


@pytest.mark.slow
def test_a_project_meets_from_outside_what_it_met_before(net: dict[str, Any]) -> None:
    """Exit codes, keys and verdicts of the commands, from a first look to a mended bug."""
    text = json.dumps(net, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("LOOP_GOLDEN") == "write":
        GOLDEN.write_text(text)
    golden = json.loads(GOLDEN.read_text())
    assert list(golden) == list(net)
    for name, expected in golden.items():
        assert net[name] == expected, name

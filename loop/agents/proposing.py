"""One run of a proposer: a process group with a deadline, of which nothing is left."""

import contextlib
import json
import os
import re
import shlex
import signal
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from loop.agents.isolation import programs
from loop.agents.presets import LIMITED, LOGIN, Preset, filled
from loop.agents.results import read_result
from loop.base.processes import STARTED, Child, Tick
from loop.base.screen import seconds_text
from loop.model.campaign import Ended
from loop.model.money import AiUse

GRACE_S = 3.0
"""Between TERM and KILL."""
LINGERS_S = 30.0
"""What a proposer may still take after it said that its turn has ended."""
BACK_OFF_S = (5.0, 15.0, 45.0, 120.0, 300.0)
"""Waits before a proposer is asked again whose provider refused it for its rate."""
SEEN = 1 << 16
"""Bytes at the end of its output in which the end of its turn is looked for."""
PASSED_ON = ("LOOP_STATE", "LOOP_CACHE", "LOOP_SESSIONS", "PYTHONDONTWRITEBYTECODE")
"""Variables that `loop kernels check` needs to find what this session uses."""


@dataclass(frozen=True)
class Errand:
    """What a proposer is sent for."""

    preset: Preset
    page: Path
    """The brief, as Markdown; as JSON beside it."""
    folder: Path
    """The target's folder, of which it edits a copy."""
    answer: Path
    """A file that it may write: `{"idea": "...", "done": true}`."""
    limit_s: float
    """What it may take."""
    quiet_s: float
    """After so long without output it is ended."""
    usd: float | None = None
    """Dollars that are left for it."""
    env: tuple[str, ...] = ()
    """Variables that it sees besides."""
    under: Sequence[str] = ()
    """Command line that isolates it."""
    cache: Path | None = None
    """Where its `loop kernels check` keeps builds: none of them is ever judged. None: where this session does."""

    @property
    def command(self) -> str:
        """For the shell."""
        text = self.preset.command + (self.preset.in_dollars if self.usd is not None else "")
        return filled(
            text,
            {
                "brief": str(self.page),
                "json": str(self.page.with_suffix(".json")),
                "workdir": str(self.folder),
                "answer": str(self.answer),
                "usd": f"{self.usd:.2f}" if self.usd is not None else "",
            },
        )


@dataclass(frozen=True)
class Errands:
    """What came of it."""

    ended: Ended
    """`edited` where it ended by itself: whether there is an edit is for others to see."""
    said: str
    seconds: float
    output: str
    use: AiUse
    idea: str = ""


def run_errand(errand: Errand) -> Generator[Tick, None, Errands]:
    """Run the proposer to its end; again, later, while its provider refuses it for its rate.

    Closing the generator ends the proposer with all that it started.
    """
    begun = time.monotonic()
    waits = iter(BACK_OFF_S)
    while True:
        result = yield from _once(errand, begun)
        wait_s = next(waits, BACK_OFF_S[-1])
        if result.ended != "limited" or time.monotonic() - begun + wait_s > errand.limit_s:
            return result
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            yield Tick(f"its provider refused it for its rate: again in {seconds_text(end - time.monotonic())}")
            time.sleep(0.1)


def _once(errand: Errand, begun: float) -> Generator[Tick, None, Errands]:
    command = ["sh", "-c", f"{{ {errand.command}\n}} < {shlex.quote(str(errand.page))}"]
    names = (*PASSED_ON, *errand.preset.env, *errand.env)
    env = {name: os.environ[name] for name in names if name in os.environ}
    env |= {"LOOP_CACHE": str(errand.cache)} if errand.cache else {}
    env["PATH"] = os.pathsep.join(programs())  # The brief names commands of loop's.
    with Child([*errand.under, *command], cwd=errand.folder, env=env) as child:
        cut = yield from _watch(child, errand, begun)
        if child.code is None:  # Its group is asked to end first.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGTERM)
            end = time.monotonic() + GRACE_S
            while child.code is None and time.monotonic() < end:
                yield Tick("ending the proposer")
                child.pump()
        child.kill()
        completed = child.completed(timed_out=cut is not None)
    last = _last_line(completed.errors) or _last_line(completed.output)
    printed = completed.output + completed.errors
    ended: Ended = cut or "edited"
    if cut is None and not completed.ok:  # Why, it says at its end.
        known: dict[str, Ended] = {LIMITED: "limited", LOGIN: "login"}
        reasons = (name for words, name in known.items() if re.search(words, printed[-4000:], re.IGNORECASE))
        ended = next(reasons, "failed")
    answer = _answer(errand.answer)
    return Errands(
        ended="done" if answer.get("done") is True else ended,
        said=last if ended in ("failed", "limited", "login") else "",
        seconds=completed.seconds,
        output=printed,
        use=use_of(errand.preset.command, completed.output),
        idea=str(answer.get("idea", ""))[:200].replace("\n", " "),
    )


def _watch(child: Child, errand: Errand, begun: float) -> Generator[Tick, None, Ended | None]:
    """Until it has ended, or has to be: why; None for what ended, or said so."""
    size_before, heard, over = 0, time.monotonic(), None
    while child.code is None:
        yield Tick(f"the proposer is at work ({seconds_text(time.monotonic() - begun)})")
        child.pump()
        streams = (child.output, child.errors)
        now, size = time.monotonic(), sum(len(part.head) + len(part.tail) + part.dropped for part in streams)
        if size != size_before:
            size_before, heard = size, now
            last = bytes(child.output.tail[-SEEN:]) or bytes(child.output.head[-SEEN:])
            ended = errand.preset.ended
            if over is None and ended and re.search(ended, last.decode(errors="replace"), re.MULTILINE):
                over = now
        if over is not None and now - over > LINGERS_S:
            return None
        if now - begun > errand.limit_s:
            return "deadline"
        if now - heard > errand.quiet_s:
            return "stalled"
    return None


def sweep_orphans(before: Sequence[int]) -> int:
    """End what lost its parent while proposers ran, and so became a child of ours; how many.

    `before`: children of ours that were there already. Orphans that left their group and emptied their environment
    are found by nothing else.
    """
    ended = 0
    for _ in range(3):
        orphans = [
            child for child in psutil.Process().children() if child.pid not in before and child.pid not in STARTED
        ]
        if not orphans:
            return ended
        for orphan in orphans:
            below: list[psutil.Process] = []
            with contextlib.suppress(psutil.Error):
                below = orphan.children(recursive=True)
            for process in (orphan, *below):
                with contextlib.suppress(psutil.Error):
                    process.kill()
                    ended += 1
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan.pid, 0)
    return ended


def children() -> list[int]:
    """Children of ours by now."""
    return [child.pid for child in psutil.Process().children()]


def _last_line(text: str) -> str:
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "")


def _answer(path: Path) -> Mapping[str, Any]:
    """What it wrote into its answer; nothing where there is none, or it is none."""
    try:
        answer = json.loads(path.read_text(errors="replace")[:SEEN]) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def use_of(command: str, printed: str) -> AiUse:
    """What it says that it used; that it says nothing, which is not nothing, where it does not."""
    name = Path(next(iter(command.split()), "an agent")).name
    unknown = AiUse(
        source="result", agents=(name,), usd=None, unpriced=(name,), notes=(f"{name} printed no result",)
    )
    return read_result(printed) or unknown

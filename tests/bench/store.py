"""`make bench-store`: what 10,000 sessions cost to list, to total and to index, and a catalogue of 1,000 to build.

Not a test: the figures go to STORE.md. The store is made from a session that is run for real first: its head,
journal and record, with times, outcomes, machines and plans varied. `--quick` is a smoke test of it: 200 sessions,
to stdout.
"""

import argparse
import copy
import datetime
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loop.base.documents import sums, write_atomic
from loop.machine.machine import machine
from loop.store.journal import NAME as JOURNAL
from loop.store.sessions import HEAD, RECORD

SESSIONS = 10_000
QUICK = 200
REPEATS = 9
"""Processes that are timed of each command; the median counts."""
SITE = 1_000
"""Sessions of the catalogue that is built, each with the report and the figures of the one that was run."""
SITES = 3
COMMANDS = (
    ("--version",),
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("patterns", "stats"),
    ("cost", "show"),
)
MACHINES = ("laptop", "builder", "l4-a", "l4-b")
PLANS = ("quick", "baseline", "kernels")
START = datetime.datetime(2026, 1, 1, 8, 0, tzinfo=datetime.UTC)
Fields = dict[str, Any]
LOOP = [sys.executable, "-c", "from loop.cli import main; main()"]


@dataclass(frozen=True)
class Original:
    """A session that was run, as plain fields."""

    head: Fields
    lines: tuple[Fields, ...]
    record: Fields


def original(folder: Path) -> Original:
    """Read a session folder."""
    lines = (folder / JOURNAL).read_text().splitlines()
    return Original(
        head=json.loads((folder / HEAD).read_text()),
        lines=tuple(json.loads(line) for line in lines),
        record=json.loads((folder / RECORD).read_text()),
    )


def make_store(root: Path, source: Original, count: int, seed: int = 7) -> None:
    """`count` sessions in `root`, an hour apart, each unlike the others."""
    chance = random.Random(seed)
    for number in range(count):
        at = START + datetime.timedelta(hours=number, seconds=chance.random() * 600)
        make_session(root, source, at, chance)


def make_session(root: Path, source: Original, at: datetime.datetime, chance: random.Random) -> Path:
    """One session that began at `at`: times drawn anew, one in eight failed, one in forty never ended."""
    plan = chance.choice(PLANS)
    folder = root / f"{at:%Y-%m-%d-%H%M%S}-{plan}"
    folder.mkdir(parents=True)
    head = _head(source.head, folder.name, at, plan, chance)
    slow = chance.lognormvariate(0, 0.3)
    failed, ended = chance.random() < 1 / 8, chance.random() > 1 / 40
    lines = list(_lines(source.lines, at, slow, failed, chance))
    sums.write_sealed(folder / HEAD, _unsealed(head))
    if not ended:
        lines = lines[: len(lines) // 2]
    before = ""
    with (folder / JOURNAL).open("w") as journal:
        for line in lines:
            text = sums.sealed(json.dumps(_unsealed(line), ensure_ascii=False), before)
            before = sums.parted(text.encode(), before)[1]
            journal.write(text + "\n")
    if ended:
        sums.write_sealed(folder / RECORD, _unsealed(_record(source.record, head, slow, failed)))
    return folder


def _unsealed(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the checksum of the session that was varied."""
    return {name: value for name, value in fields.items() if name != "sum"}


def _head(head: Fields, name: str, at: datetime.datetime, plan: str, chance: random.Random) -> Fields:
    made = copy.copy(head)
    made["id"], made["started"] = name, at.isoformat()
    made["plan"] = {**head["plan"], "plan": {**head["plan"]["plan"], "name": plan}}
    made["machine"] = {**head["machine"], "name": chance.choice(MACHINES)}
    made["seed"], made["ground"] = chance.randrange(1 << 24), f"{chance.randrange(40):064x}"
    return made


def _lines(
    lines: Sequence[Fields], at: datetime.datetime, slow: float, failed: bool, chance: random.Random
) -> Iterator[Fields]:
    now = at
    last = max(n for n, line in enumerate(lines) if line["event"] == "finished")
    for number, line in enumerate(lines):
        made = {**line, "at": now.isoformat()}
        if line["event"] == "finished":
            made["seconds"] = line["seconds"] * slow * chance.lognormvariate(0, 0.2)
            now += datetime.timedelta(seconds=made["seconds"])
        if failed and number == last:
            made |= {"status": "failed", "message": f"/tmp/x{chance.randrange(10)}.so: undefined symbol: f"}
        if failed and line["event"] == "closed":
            made["status"] = "failed"
        yield made


def _record(record: Fields, head: Fields, slow: float, failed: bool) -> Fields:
    bill = copy.deepcopy(record["bill"])
    for charge in bill["charges"]:
        charge["seconds"] *= slow
        charge["usd"] *= slow
    bill["usd"] *= slow
    ended = {"status": "failed", "grade": "D"} if failed else {}
    return {**record, "head": head, "seconds": record["seconds"] * slow, "bill": bill, **ended}


@dataclass(frozen=True)
class Timing:
    """Seconds of a whole process."""

    wall_s: float
    cpu_s: float


def timed(words: Sequence[str], root: Path, cache: Path) -> Timing:
    """One process of `loop`, its output thrown away. Raises CalledProcessError when it fails."""
    env = {**os.environ, "LOOP_SESSIONS": str(root), "LOOP_CACHE": str(cache), "NO_COLOR": "1"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*LOOP, *words], check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Timing(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def row_of(title: str, timings: Sequence[Timing]) -> str:
    """Median and best wall time, and processor time."""
    wall = sorted(one.wall_s for one in timings)
    cpu = statistics.median(one.cpu_s for one in timings)
    return f"| `loop {title}` | {statistics.median(wall):.2f} | {wall[0]:.2f} | {cpu:.2f} |"


def document(count: int, repeats: int, folder: Path) -> Iterator[str]:
    """The whole of STORE.md."""
    root, cache = folder / "sessions", folder / "cache"
    env = {**os.environ, "LOOP_SESSIONS": str(folder / "real"), "LOOP_CACHE": str(cache)}
    command = [*LOOP, "run", "session", "quick", "--variant", "cpu"]
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    (real,) = [path for path in (folder / "real").iterdir() if (path / RECORD).is_file()]
    make_store(root, original(real), count)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    here, today = machine(), datetime.date.today()
    yield "# A store of many sessions\n"
    yield f"`make bench-store`, {today}, {here.processor}, {here.cores} cores, load {os.getloadavg()[0]:.1f}.\n"
    yield f"{count:,} sessions, {size / 1e6:.0f} MB of heads, journals and records, varied from one that was run."
    yield "Seconds of whole processes, the interpreter's start included.\n"
    yield "| command | median | best | processor |\n|---|--:|--:|--:|"
    yield row_of("sessions list", [timed(("sessions", "list"), root, cache)]).replace(
        "list`", "list`, no index yet"
    )
    for words in COMMANDS:
        yield row_of(" ".join(words), [timed(words, root, cache) for _ in range(repeats)])
    at = START + datetime.timedelta(hours=count + 1)
    make_session(root, original(real), at, random.Random(1))
    yield row_of("sessions list", [timed(("sessions", "list"), root, cache)]).replace("list`", "list`, one new")
    yield _site(folder, real, min(count, SITE), cache)
    index_size = sum(path.stat().st_size for path in (cache / "index").iterdir())
    yield f"\nThe index is a file of {index_size / 1e6:.0f} MB. {BOUNDS}"


def _site(folder: Path, real: Path, count: int, cache: Path) -> str:
    """The row of a catalogue that is built from nothing."""
    root, out = folder / "published", folder / "site"
    make_store(root, original(real), count)
    for session in root.iterdir():
        shutil.copy(real / "report.md", session)
        shutil.copytree(real / "figures", session / "figures")
    words = ("catalog", "build", "--out", str(out))
    timings = [timed(words, root, cache) for _ in range(SITES)]
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return row_of("catalog build", timings).replace("build`", f"build`, {count:,} sessions, {size / 1e6:.0f} MB")


BOUNDS = """What bounds these figures: starting Python and typer (the first row), the
system calls that ask each session folder for size and time of its three files (30,000 in all, a third of the
rest), and printing the list. Other work on the same processors shows in wall time, not in processor time."""


def main() -> None:
    """Make the store, time the commands, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="loop-store-"))
    try:
        text = "\n".join(document(QUICK if quick else SESSIONS, 2 if quick else REPEATS, folder)) + "\n"
    finally:
        shutil.rmtree(folder)
    if quick:
        sys.stdout.write(text)
    else:
        write_atomic(Path(__file__).with_name("STORE.md"), text)


if __name__ == "__main__":
    main()

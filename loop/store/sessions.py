"""Create, find and read session folders: `sessions/<id>/` has head, journal, samples, record.

The index has one row per session folder, with its passed and failed checks: a JSON line with a
checksum. Each read updates it where a line is damaged, or size or time of a folder's files changed.
"""

import contextlib
import datetime
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple, TypeVar

from loop import __version__
from loop.base.documents import sums, write_atomic
from loop.base.errors import LoopError, UsageError, WorkFailed, remark_once
from loop.base.locks import locked
from loop.base.places import cache_folder
from loop.model.bisect import BisectOutput
from loop.model.change import DecisionOutput, hosts_of, kept_gains
from loop.model.history import RecordedSession
from loop.model.index import Environment, Judgement, PatternRun, SessionRow, StepRun
from loop.model.measurement import PropertyCheck, Verdict
from loop.model.money import Charge, Resource, Unmeasured
from loop.model.output import EarlierTry, Output, SanitizeOutput, VerifyOutput, outputs_of
from loop.model.record import Finished, Line, SessionHead, SessionRecord, Status, latest_attempts
from loop.store import journal
from loop.store.fingerprints import collect_failures

HEAD, RECORD, REPORT, LOCK, SAMPLES = "session.json", "record.json", "report.md", "lock", "samples"
CHANGES, RECORDED, RESERVE = "changes", "recorded.json", ".reserve"
MAX_EARLIER = 50  # Most earlier sessions that `earlier_sessions` looks at.

T = TypeVar("T", SessionHead, SessionRecord, RecordedSession)


@dataclass(frozen=True)
class SessionFolder:
    """One session on disk."""

    path: Path

    @property
    def id(self) -> str:
        """Name of the session."""
        return self.path.name

    @property
    def report(self) -> Path:
        """Path of the session's report."""
        return self.path / REPORT

    @contextlib.contextmanager
    def locked_with_head(self, head: SessionHead) -> Iterator[None]:
        """Lock the session while it runs, and write its head. Removes the folder if that write
        fails. Raises LockHeld when another process has the lock."""
        try:
            with locked(self.path / LOCK):
                self.write_head(head)
                yield
        except LoopError:
            if not (self.path / HEAD).exists():
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def head(self) -> SessionHead:
        """The facts stored when the session began. Raises LoopError when the file is damaged."""
        return read_stored(SessionHead, self.path / HEAD)

    def record(self) -> SessionRecord | None:
        """The session's results; None until the session has finished."""
        path = self.path / RECORD
        return read_stored(SessionRecord, path) if path.exists() else None

    def lines(self) -> list[Line]:
        """All journal lines. Raises LoopError if some are damaged, or missing since the record."""
        lines = [line for line, _ in journal.checked_lines(self.path / journal.NAME)]
        record = None
        with contextlib.suppress(LoopError):  # `record()` reports damage to its own caller.
            record = self.record()
        if damage := describe_lost_lines(self.path, record, lines):
            raise WorkFailed(damage, hint=f"move {self.path} aside")
        return lines

    def finished(self) -> tuple[Finished, ...]:
        """The steps that have ended, in journal order."""
        return journal.finished_steps(self.lines())

    def write_reserve(self) -> None:
        """Write a spare file, to delete on a full disk. Raises LoopError without room for it."""
        try:
            (self.path / RESERVE).write_bytes(os.urandom(1 << 20))  # Random: incompressible.
        except OSError as error:
            raise journal.write_error(self.path / RESERVE, error) from error

    def free_reserve(self) -> None:
        """Delete the spare file, so that the last records fit on a full disk."""
        with contextlib.suppress(OSError):
            (self.path / RESERVE).unlink(missing_ok=True)

    def write_head(self, head: SessionHead) -> None:
        """Store the head: the facts known when the session begins."""
        sums.write_sealed(self.path / HEAD, head)

    def write_record(self, record: SessionRecord) -> None:
        """Store the record: the session's results."""
        sums.write_sealed(self.path / RECORD, record)

    def write_samples(self, name: str, rows: Sequence[Any]) -> str:
        """Store raw timings as `samples/NAME.json`; return that path, relative to the session."""
        folder = self.path / SAMPLES
        folder.mkdir(exist_ok=True)
        sums.write_sealed(folder / f"{name}.json", {"format": 1, "segments": list(rows)})
        return f"{SAMPLES}/{name}.json"


def describe_lost_lines(folder: Path, record: SessionRecord | None, lines: Sequence[Line]) -> str:
    """A message that the journal has fewer lines than its record counted; else empty."""
    if record is None or len(lines) >= record.lines:
        return ""
    first, path = len(lines) + 1, folder / journal.NAME
    return f"{path}:{first}: damaged: cut off, lines {first} to {record.lines} are missing"


def write_figures(folder: Path, figures: Mapping[str, str]) -> None:
    """Write figures (relative path to SVG text) below a folder. Raises LoopError on failure."""
    for name, text in figures.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise journal.write_error(path.parent, error) from error
        write_atomic(path, text)


def create_session(root: Path, plan: str, now: datetime.datetime) -> SessionFolder:
    """Create an empty session folder named by time and plan. Raises LoopError when that fails."""
    stem = f"{now:%Y-%m-%d-%H%M%S}-{plan}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name in (stem, *(f"{stem}-{number}" for number in range(2, 100))):
            with contextlib.suppress(FileExistsError):
                (root / name).mkdir()
                return SessionFolder(root / name)
    except OSError as error:
        raise journal.write_error(root, error) from error
    raise WorkFailed(f"{root}: a hundred sessions began in this second", hint="try again")


def import_session(session: Path, root: Path) -> Path:
    """Copy a session's folder, which may come from elsewhere, into the folder `root` of all
    sessions. Returns its folder there. One of that name stays if its journal begins with the new
    one; it is replaced if the new journal begins with all its lines. Else raises WorkFailed."""
    destination = root / session.name
    if destination.exists():
        paths = (folder / journal.NAME for folder in (destination, session))
        local, sent = (path.read_text(errors="replace") if path.is_file() else "" for path in paths)
        if sent and local.startswith(sent):  # Copied earlier; it may have gone on here.
            return destination
        whole_lines = local[: local.rfind("\n") + 1]
        if not whole_lines or not sent.startswith(whole_lines):
            message = f"{destination} is there already, and went on here meanwhile"
            raise WorkFailed(message, hint="move it aside")
    # At any moment `destination` or its `.old` copy holds a whole session.
    new = destination.with_name(f".{session.name}.new")
    old = destination.with_name(f".{session.name}.old")
    for stale in (new, old):
        shutil.rmtree(stale, ignore_errors=True)
    shutil.copytree(session, new)  # Makes `root`, too.
    if destination.exists():
        destination.rename(old)
    new.rename(destination)
    shutil.rmtree(old, ignore_errors=True)
    return destination


def list_sessions(root: Path) -> list[SessionFolder]:
    """All sessions below `root`, oldest first; empty when the folder is missing."""
    if not root.is_dir():
        return []
    names = [path.name for path in root.iterdir() if (path / HEAD).is_file()]
    # Names begin with the time. Compare numbers as integers, so that `-10` sorts after `-2`.
    names.sort(key=lambda name: re.sub("[0-9]+", lambda number: number[0].zfill(20), name))
    return [SessionFolder(root / name) for name in names]


def find_session(root: Path, name: str) -> SessionFolder:
    """The session of this id, beginning of it, `last` or `last~1`. Raises UsageError if not one."""
    folders = list_sessions(root)
    last_match = re.fullmatch(r"last(?:~(\d{1,6}))?", name)
    if last_match and int(last_match[1] or 0) < len(folders):
        return folders[-1 - int(last_match[1] or 0)]
    matches = [folder for folder in folders if folder.id.startswith(name)]
    matches = [folder for folder in matches if folder.id == name] or matches
    if len(matches) == 1:
        return matches[0]
    suggestions = ", ".join(folder.id for folder in matches or folders[-5:])
    hint = f"one of {suggestions}" if suggestions else "`loop run session` makes one"
    text = f"{name}: {len(matches)} sessions begin so" if matches else f"{root}: no session {name}"
    raise UsageError(text, hint=hint)


def read_stored(model: type[T], path: Path) -> T:
    """A file of a session folder, as `model`. Raises LoopError if damaged or unreadable."""
    try:
        return sums.read_sealed(model, path, f"move {path.parent} aside")
    except OSError as error:
        raise WorkFailed(f"{path}: cannot be read: {error.strerror}") from error


def running_seconds(lines: Sequence[Line]) -> float:
    """Wall seconds in which the session ran. Before each `Opened` line it was paused."""
    pairs = [(line, later) for line, later in pairwise(lines) if later.event.event != "opened"]
    return sum(max(0.0, (later.at - line.at).total_seconds()) for line, later in pairs)


def earlier_sessions(
    root: Path, head: SessionHead, key_of: Callable[[SessionHead], object]
) -> Iterator[tuple[SessionFolder, SessionHead, tuple[Finished, ...]]]:
    """Of the last `MAX_EARLIER` sessions before `head`, those for which `key_of` gives the same:
    oldest first, with head and ended steps. Later ones do not count, so that a resumed session sees
    the same past. Damaged ones are skipped, with a remark."""
    key, folders = key_of(head), list_sessions(root)
    ids = [folder.id for folder in folders]
    for folder in folders[: ids.index(head.id) if head.id in ids else None][-MAX_EARLIER:]:
        try:
            earlier_head = folder.head()
            if key_of(earlier_head) == key:
                yield folder, earlier_head, folder.finished()
        except LoopError as error:
            remark_once(f"left out: {error.message}")


def verified_builds(root: Path, head: SessionHead) -> tuple[EarlierTry, ...]:
    """Builds that earlier sessions of the same target and device verified, oldest first.
    One entry per session and variant, from the variant's last verification."""
    attempts = []
    same_target = attrgetter("target", "target_folder", "device")
    for folder, earlier_head, steps in earlier_sessions(root, head, same_target):
        outputs = outputs_of(steps, VerifyOutput)
        verified = {checks.variant: checks for output in outputs for checks in output.variants}
        for variant, checks in verified.items():
            message = checks.first_failure.message if checks.first_failure else ""
            fields = {"session": folder.id, "variant": variant, "build_id": checks.build_id}
            fields |= {"ground": earlier_head.ground, "hypothesis": earlier_head.hypothesis}
            attempts.append(EarlierTry(right=checks.is_right, message=message, **fields))
    return tuple(attempts)


RECENT_SESSIONS = 200  # Number of newest sessions that predictions, proposals and decisions use.
MAX_NAMED = 5  # Most damaged folders in a message; `loop sessions list --json` has all.
FORMAT = f"26 {__version__}"  # Of rows; in each folder's stamp, so a new one reads all anew.


class IndexEntry(NamedTuple):
    """What the index says of one session folder."""

    folder: str  # Its name.
    row: SessionRow | None  # None for copies and unreadable folders: no statistics.
    problem: str  # What is wrong with the folder's files; empty if nothing is.


def rows(root: Path, *, last: int | None = None, target: str | None = None) -> list[SessionRow]:
    """Index rows of the sessions below `root`, oldest first. Default: all. `last`: only so many
    newest. `target`: only this target's. Names damaged folders and skips them."""
    lines = _read_lines(root)
    for line in [line for line in lines if line["problem"]][:MAX_NAMED]:
        remark_once(f"left out: {line['problem']}")
    texts = [line["row"] for line in lines if line["row"] and target in (None, line["target"])]
    newest = texts if last is None else texts[max(0, len(texts) - last) :]
    return [SessionRow.model_validate_json(text) for text in newest]


def entries(root: Path) -> list[IndexEntry]:
    """One entry per session folder, oldest first, including damaged folders and copies."""
    entries = []
    for line in _read_lines(root):
        row = SessionRow.model_validate_json(line["row"]) if line["row"] else None
        entries.append(IndexEntry(line["folder"], row, line["problem"]))
    return entries


def index_file(root: Path) -> Path:
    """Path of the index file of a sessions folder, in the cache (safe to delete)."""
    name = hashlib.sha256(str(root.absolute()).encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / "index" / f"{name}.jsonl"


def _read_lines(root: Path) -> list[dict[str, Any]]:
    """Bring the index file up to date. Returns its lines as JSON objects, oldest session first: the
    fields of IndexEntry (`row` as JSON text), `stamp`, `started` and `target`."""
    stamp_by_folder = _folder_stamps(root)
    line_by_folder, fields_by_folder = dict[str, bytes](), dict[str, dict[str, Any]]()
    path, old_content = index_file(root), b""
    with contextlib.suppress(OSError):
        old_content = sums.read_regular(path)
    for line in old_content.splitlines():
        body, _, is_intact = sums.split_checksum(line)
        entry = json.loads(body) if is_intact else {}
        if is_intact and stamp_by_folder.get(entry["folder"]) == entry["stamp"]:
            line_by_folder[entry["folder"]], fields_by_folder[entry["folder"]] = line, entry
    for name in sorted(stamp_by_folder.keys() - fields_by_folder.keys()):
        row, problem = compute_row(root / name)
        # Sessions from before loop have no time and come first.
        started = row.started.astimezone(datetime.UTC) if row and row.started else None
        entry = {"folder": name, "stamp": stamp_by_folder[name], "problem": problem}
        entry["started"] = started.isoformat(timespec="microseconds") if started else ""
        entry["target"] = row.target if row else None
        entry["row"] = row.model_dump_json() if row else None
        fields_by_folder[name] = entry
        line_by_folder[name] = sums.with_checksum(json.dumps(entry)).encode()
    new_content = b"".join(line + b"\n" for line in line_by_folder.values())
    if new_content != old_content:
        with contextlib.suppress(LoopError, OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, new_content, durable=False)
    return sorted(fields_by_folder.values(), key=itemgetter("started", "folder"))


def _folder_stamps(root: Path) -> dict[str, str]:
    """Name of each session's folder to its stamp: format, then size and time (ns) of main files."""
    stamp_by_folder = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as folders:
        for folder in folders:
            parts = []
            for name in ("session.json", "recorded.json", "record.json", "journal.jsonl"):
                try:
                    status = os.stat(f"{folder.path}/{name}")
                    parts.append(f"{status.st_size} {status.st_mtime_ns}")
                except OSError:
                    parts.append("-")
            if folder.name[0] != "." and parts[:2] != ["-", "-"]:  # Else it holds no session.
                stamp_by_folder[folder.name] = " ".join([FORMAT, *parts])
    return stamp_by_folder


WORST_FIRST: tuple[Status, ...] = ("failed", "aborted", "paused", "passed")
HEAD_FIELDS = (  # Fields that a row copies from the session's head.
    "id", "started", "target", "device", "variants", "emulated", "threads", "ground", "harness",
    "attended", "loop_version", "predicted",
)  # fmt: skip
CHECK_ACTIONS = ("kernel.verify", "kernel.emulate")  # These compare with the reference.
TIMING_ACTIONS = ("kernel.measure", "kernel.compare")  # Timing actions. They check outputs too.


def compute_row(path: Path) -> tuple[SessionRow | None, str]:
    """The index row of a session folder, and what is wrong with its files (empty if nothing). The
    row is None for copies and unreadable folders. Of a damaged journal the intact start counts."""
    folder = SessionFolder(path)
    try:
        if (path / RECORDED).is_file():  # Imported, from before `loop`: it has no journal.
            return _recorded_row(read_stored(RecordedSession, path / RECORDED)), ""
        head, record = folder.head(), folder.record()
        if head.id != path.name:  # A copied folder must not count twice.
            return None, f"{path}: a copy of session {head.id}"
        lines, problem = list[Line](), ""
        try:
            lines.extend(line for line, _ in journal.checked_lines(path / journal.NAME))
        except LoopError as error:
            problem = error.message
        return session_row(head, record, lines), problem or describe_lost_lines(path, record, lines)
    except LoopError as error:
        return None, error.message


def session_row(
    head: SessionHead, record: SessionRecord | None, lines: Sequence[Line]
) -> SessionRow:
    """The index row of a session. `record` is None when the session has not ended."""
    steps = latest_attempts(journal.finished_steps(lines))
    plan, runs = head.plan.plan, tuple(_summarise_runs(head, steps, lines))
    decisions = outputs_of(steps, DecisionOutput)
    is_right, reusable_results = dict[str, bool](), dict[str, bool]()
    machine, torch_version = head.machine, head.machine.torch
    driver = machine.driver if head.gpu else None
    tools = {"processor": machine.processor, "cuda": machine.nvcc, "compiler": machine.compiler}
    for step in steps:
        if step.action == "environment.torch":
            torch_version = step.output.get("version") or torch_version
        for verdict in ("right", "wrong") if step.action in CHECK_ACTIONS else ():
            is_right |= dict.fromkeys(step.output.get(verdict, ()), verdict == "right")
    for output in outputs_of(steps, Output):
        if output.rests_on and not output.taken_from:  # Made here, and reusable by later sessions.
            earlier = reusable_results.get(output.rests_on, True)
            reusable_results[output.rests_on] = output.ok and earlier
    ended = [line.event for line in lines if isinstance(line.event, Finished)]
    return SessionRow(
        **{name: getattr(head, name) for name in HEAD_FIELDS},
        plan=plan.name,
        workloads=(*plan.workloads, *plan.checks),
        kept=kept_gains(steps),
        left=next((decision.ground for decision in reversed(decisions) if decision.kept), ""),
        commit=None if head.revision.dirty else head.revision.commit,
        base=head.revision.commit,
        environment=Environment(gpu=head.gpu, driver=driver, torch=torch_version, **tools),
        runs=runs,
        right=tuple(variant for variant, passed in is_right.items() if passed),
        judged=tuple(judgements(head, steps)),
        blamed=dict(find_blamed_commits(steps)),
        otherwise=plan.otherwise or "",
        lasting=reusable_results,
        complete=set(plan.patterns) <= {run.pattern for run in runs if run.whole},
        steps=tuple(StepRun.model_validate(step, from_attributes=True) for step in steps),
        hosts=hosts_of(steps),
        failures=collect_failures(head, ended),
        **{"status": None, **(_fields_of_record(record) if record else {})},
    )


def _recorded_row(session: RecordedSession) -> SessionRow:
    """The index row of a session from before `loop`. Predictions and the return leave it out."""
    gpu, row, seconds = session.gpu.get("name"), session.row, session.row.minutes * 60
    costs: dict[Resource, float | None] = {"gpu": row.gpu_usd, "ai": row.ai_usd}
    costs["engineer"] = row.engineer_usd
    known = {name: usd for name, usd in costs.items() if usd is not None}
    fields = {"rate": "history", "seconds": seconds, "basis": "stated"}
    charges = [Charge(resource=name, usd=usd, **fields) for name, usd in known.items()]
    reason = "its report states none"
    missing = [Unmeasured(resource=name, reason=reason) for name in costs if name not in known]
    return SessionRow(
        id=session.id,
        started=None,
        target="recorded elsewhere",
        plan="recorded",
        device="cuda",
        status=None,
        reason=row.outcome,
        grade=row.grade or "",
        seconds=seconds,
        environment=Environment(processor="", gpu=str(gpu) if gpu else None),
        charges=tuple(charges),
        usd=sum(charge.usd for charge in charges),
        unmeasured=tuple(missing),
        incorrect=("the kernel",) if row.correct is False else (),  # Its variants have no names.
        recorded=True,
    )


def find_blamed_commits(steps: Sequence[Finished]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Variant and commits (hash, subject) of each bisection: the culprit, or its range."""
    for output in outputs_of(steps, BisectOutput):
        if output.answer and (commits := (*output.answer.culprits, *output.answer.range)):
            yield output.variant, tuple(commit.name for commit in commits)


def _fields_of_record(record: SessionRecord) -> dict[str, object]:
    """The row's fields that exist only after the session has ended."""
    ratios: dict[str, list[float]] = {}  # Variant to its ratios to the baseline.
    speeds = dict[str, dict[str, float]]()  # Variant to workload to a conclusive ratio to it.
    for verdict in record.verdicts:
        if verdict.ratio is not None and verdict.against == "baseline":
            ratios.setdefault(verdict.variant, []).append(verdict.ratio)
            if verdict.verdict != "inconclusive":
                speeds.setdefault(verdict.variant, {})[verdict.workload] = verdict.ratio
    against_known_good = [verdict for verdict in record.verdicts if verdict.against == "known_good"]
    # A comparison with the known good says nothing on how a variant compares with the library.
    others = [verdict for verdict in record.verdicts if verdict.against != "known_good"]
    missed = record.objective.missed if record.objective else ()
    record_fields = ("status", "reason", "grade", "seconds", "own_seconds")
    bill_fields = ("charges", "savings", "usd", "unmeasured", "notes")
    return {
        **{name: getattr(record, name) for name in record_fields},
        **{name: getattr(record.bill, name) for name in bill_fields},
        "missed": "; ".join(miss.words for miss in missed),
        "speeds": speeds,
        "ratios": {variant: geometric_mean(values) for variant, values in ratios.items()},
        "inconclusive": variants_with("inconclusive", others),
        "regressed": variants_with("slower", against_known_good),
        "incorrect": variants_with("incorrect", record.verdicts),
    }


def variants_with(word: str, verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Variants with a verdict `word`, such as `slower`, on any workload. Each appears once."""
    return tuple(dict.fromkeys(verdict.variant for verdict in verdicts if verdict.verdict == word))


def _summarise_runs(
    head: SessionHead, steps: Sequence[Finished], lines: Sequence[Line]
) -> Iterator[PatternRun]:
    """One summary per run of a pattern, which can run twice. `steps`: the last attempt of each."""
    start_times: dict[tuple[int, str], datetime.datetime] = {}
    for line in lines:
        if line.event.event == "started":
            start_times.setdefault((line.event.run, line.event.pattern), line.at)
    by_run: dict[tuple[int, str], list[Finished]] = {}
    for step in steps:
        by_run.setdefault((step.run, step.pattern), []).append(step)
    step_counts = {each.pattern.name: len(each.pattern.steps) for each in head.plan.patterns}
    for (run, name), run_steps in by_run.items():
        statuses = {step.status for step in run_steps}
        builds = [build for step in run_steps for build in step.output.get("builds") or ()]
        yield PatternRun(
            pattern=name,
            status=next((status for status in WORST_FIRST if status in statuses), "skipped"),
            seconds=sum(step.seconds for step in run_steps),
            started=start_times.get((run, name), head.started),
            whole=len(run_steps) == step_counts.get(name) and not was_cut_short(run_steps),
            built=any(isinstance(build, dict) and not build.get("cached") for build in builds),
        )


def was_cut_short(steps: Sequence[Finished]) -> bool:
    """Whether a run of a pattern (its steps in order) was ended early, or left out steps because
    one had failed. Its time says nothing on a whole run. A step with nothing to do has output."""
    statuses = [step.status for step in steps]
    after_failure = steps[statuses.index("failed") :] if "failed" in statuses else ()
    is_left_out = any(step.status == "skipped" and not step.output for step in after_failure)
    return is_left_out or bool({"aborted", "paused"}.intersection(statuses))


def judgements(head: SessionHead, steps: Sequence[Finished]) -> Iterator[Judgement]:
    """Checks of a session as judgements: one for each variant, build and condition (threads, seed,
    emulator). A check that failed once failed. Those that the library failed too are left out."""
    # Debugging steps store `builds` in another form.
    build_steps = [step for step in steps if not step.action.startswith("debug.")]
    builds = [build for step in build_steps for build in step.output.get("builds", ())]
    last_build_id = {build["variant"]: build["build_id"] for build in builds}
    copied_builds = {build["build_id"] for build in builds if not build.get("compiled", True)}
    session_threads = 0 if head.device == "cuda" else head.threads  # They do not matter on a GPU.
    passed_by_check: dict[Judgement, dict[str, bool]] = {}

    def add(check: str, variant: str, *, passed: bool, **conditions: Any) -> None:
        """Add a check of a variant. `conditions`: fields of `Judgement` unlike the session's."""
        fields: dict[str, Any] = {"build": last_build_id.get(variant, ""), "seed": head.seed}
        fields |= {"threads": session_threads, "emulated": False, **conditions}
        if fields["build"] in copied_builds:  # Its files identify a Python variant.
            fields["build"] = ""
        checks = passed_by_check.setdefault(Judgement(variant=variant, **fields), {})
        checks[check] = passed and checks.get(check, True)

    for step in steps:
        for output in outputs_of([step], VerifyOutput):
            if output.control is not None and not output.control.is_right:
                continue  # The library failed the same checks, so they prove nothing.
            for checks in output.variants:
                is_judged = checks.variant in output.right or checks.first_failure is not None
                emulated = checks.emulated or step.action == "kernel.emulate"
                build_id = checks.build_id or ""
                for check in checks.checks if is_judged else ():
                    threads = session_threads and (check.threads or session_threads)
                    layout = "" if check.inputs == "contiguous" else f", {check.inputs}"
                    conditions = {"seed": output.seed, "threads": threads, "emulated": emulated}
                    name = f"{check.workload.name}{layout}"
                    add(name, checks.variant, passed=check.passed, build=build_id, **conditions)
    for step in steps:
        for fields in step.output.get("checks", ()) if step.action == "kernel.properties" else ():
            tested = PropertyCheck.model_validate(fields, extra="ignore")
            if tested.status != "inapplicable":
                name = f"{tested.workload}, property {tested.property}"
                add(name, tested.variant, passed=tested.status == "holds")
        timings = outputs_of([step], Output) if step.action in TIMING_ACTIONS else []
        for verdict in timings[0].verdicts if timings else ():
            if verdict.verdict != "invalid":
                name = f"{verdict.workload}, timed against {verdict.against}"
                add(name, verdict.variant, passed=verdict.verdict != "incorrect")
    for report in outputs_of(steps, SanitizeOutput):
        for variant in (*report.clean, *report.found):
            add("sanitizers", variant, passed=variant in report.clean)
    for judgement, passed_checks in passed_by_check.items():
        right = tuple(name for name, passed in passed_checks.items() if passed)
        wrong = tuple(name for name, passed in passed_checks.items() if not passed)
        yield judgement.model_copy(update={"right": right, "wrong": wrong})


def wrong_builds(rows: Sequence[SessionRow]) -> set[tuple[str, str, str]]:
    """Builds that failed a check: (variant, build id, ""); of Python (variant, "", files' hash)."""
    pairs = [(row, judgement) for row in rows for judgement in row.judged if judgement.wrong]
    return {(wrong.variant, wrong.build, "" if wrong.build else row.ground) for row, wrong in pairs}

"""Drives a walk: writes each event to disk, shows it, checks the limits, then asks for the next one."""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loop.base.documents import sums, to_json
from loop.base.errors import ExitCode, LoopError, Stopped
from loop.base.interrupts import raise_if_signalled, signals_as_flags
from loop.machine.failures import find_machine_failure
from loop.model.record import Finished, Started, StepTick
from loop.report.screen import Screen, seconds_text
from loop.session.bounds import Bounds, Ending, make_interrupted_ending
from loop.session.walk import PatternBegan, PatternEnded, StepBegan, StepDue, StepEnded, Ticked, Walk, WalkEvent
from loop.store.journal import Journal
from loop.store.sessions import SessionFolder


@dataclass
class Show:
    """Prints the events of a walk: a live status line in a terminal, else one plain line a step."""

    screen: Screen
    as_events: bool = False
    recall_lines: Callable[[Finished], Sequence[str]] = lambda record: ()
    """Takes a failed step; returns lines about the same failure in earlier sessions."""
    last_begun: Started | None = None
    """The last step whose begin was printed when the output is no terminal."""
    printed_skips: set[tuple[str, str]] = field(default_factory=set)
    """(pattern, reason) of skipped steps already printed: a second step with that reason is not."""

    def print_event(self, event: WalkEvent) -> None:
        """Print one event."""
        if self.as_events:
            self._print_json(event)
        if isinstance(event, PatternBegan):
            self.screen.say(f"[{event.index}/{event.of}] {event.title}")
        elif isinstance(event, Ticked):
            self._print_tick(event)
        elif isinstance(event, StepEnded):
            self._print_step_end(event)
        elif isinstance(event, PatternEnded) and event.answered_by:
            self.screen.say(f"  {event.name} {event.status}: {event.answered_by} answers")

    def _print_tick(self, event: Ticked) -> None:
        """Show the progress of a step: in a terminal as the status line, else only begin and heartbeats."""
        step, budget_text = event.started, seconds_text(event.started.budget_s)
        position_text = f"  {step.index}/{step.of} {step.step}"
        time_text = f"{seconds_text(event.seconds)} of about {budget_text}"
        if self.screen.may_animate:
            self.screen.status(f"{position_text}: {event.note} ({time_text})")
            return
        if self.last_begun != step:
            self.last_begun = step
            self.screen.say(f"  begins   {step.step} (about {budget_text})")
        if event.heartbeat:
            self.screen.say(f"{position_text}: still at it, {event.note} ({time_text})")

    def _print_step_end(self, event: StepEnded) -> None:
        """Print how a step ended, and its hint. Of steps skipped for one reason, only the first is printed."""
        record = event.finished
        skip_key = (record.pattern, record.skipped_because)
        if skip_key in self.printed_skips:
            return
        if record.skipped_because:
            self.printed_skips.add(skip_key)
        time_text = f"{seconds_text(record.seconds)} of {seconds_text(record.budget_s)}"
        time_text += ", as before" if event.replayed else ""
        time_text = "" if record.status == "skipped" else f" ({time_text})"
        text = f" {record.step}{time_text}: {record.message}"
        self.screen.outcome(record.status, text, prefix="  ", status_columns=8)
        if record.status in ("failed", "paused") and record.hint:
            self.screen.say(f"           next: {record.hint}")
        if record.status == "failed":
            for line in self.recall_lines(record):
                self.screen.say(f"           {line}")

    def _print_json(self, event: WalkEvent) -> None:
        """Write an event to stdout as a line of JSON, except progress without a heartbeat."""
        if isinstance(event, StepDue) or (isinstance(event, Ticked) and not event.heartbeat):
            return
        if isinstance(event, StepBegan | Ticked):
            fields = event.started.model_dump(mode="json")
        elif isinstance(event, StepEnded):
            recalled = list(self.recall_lines(event.finished))
            fields = {**event.finished.model_dump(mode="json"), "seen_before": recalled}
        else:
            fields = vars(event)
        line = {"schema_version": 1, "happening": type(event).__name__, **fields}
        self.screen.data(to_json(line, None))


def drive(walk: Walk, show: Show, store: Callable[[WalkEvent], WalkEvent], bounds: Bounds | None = None) -> Ending:
    """Run a walk until it ends, or until a limit, a signal or a machine failure stops it; returns how it ended.
    Other errors are raised. `store` writes an event to disk and returns it as it is shown. `bounds`: None: no
    limits."""
    begin, bounds = time.monotonic(), bounds or Bounds()
    last_event: WalkEvent | None = None
    with contextlib.closing(walk.events()) as events:
        try:
            with signals_as_flags():
                raise_if_signalled()
                for event in events:
                    last_event = store(event)
                    show.print_event(last_event)
                    bounds.raise_if_over(last_event, time.monotonic() - begin)
                    raise_if_signalled()
        except (Stopped, LoopError, OSError, MemoryError) as error:
            events.close()
            stop = error if isinstance(error, Stopped) else find_machine_failure(error, walk.folders)
            if stop is None:
                raise
            ending = make_interrupted_ending(stop)
            bounds.free_reserve()  # On a full disk, this is room for the interrupted step's record.
            if isinstance(last_event, StepBegan | Ticked):  # A step was running: it ends like the walk.
                started, workshop = last_event.started, walk.context.task.workshop
                steps = walk.resolved.find_pattern(started.pattern).pattern.steps
                (action,) = [step.action for step in steps if step.id == started.step]
                status, hint = ending.status or "aborted", ""
                if workshop and status == "paused":
                    hint = f"{ending.resume_phrase}: {workshop.resume_command}"
                seconds = last_event.seconds if isinstance(last_event, Ticked) else 0.0
                record = Finished.of(started, action, status, ending.reason, hint=hint or None, seconds=seconds)
                show.print_event(store(StepEnded(record)))
            return ending
    if walk.failure is not None:  # A failure of the machine paused the last step.
        bounds.free_reserve()
        return make_interrupted_ending(walk.failure)
    if walk.is_paused:
        return Ending("paused", walk.stop_reason or "", ExitCode.PAUSED)
    code = ExitCode.BUG if walk.has_bug else ExitCode.OK
    if not walk.is_stop_reached:
        return Ending(None, walk.stop_reason or "", code)
    stop_text = f"the plan stops where `{walk.resolved.plan.stop_if}` is true"
    show.screen.say(f"no further step is begun: {stop_text}")
    return Ending(None, walk.stop_reason or "", code, stop_text)


TICKS = "ticks.jsonl"
MAX_TICK_BYTES = 2**20
"""Maximum size of the file of progress notes, which `loop status` reads. Later notes are dropped."""
MIN_INTERVAL_S = 0.02
"""Minimum seconds between two notes of one step. A note that comes sooner is dropped."""


class TickFile:
    """Appends progress notes to one file. Ignores write errors, so that they never end a session."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_tick: StepTick | None = None

    def add(self, tick: StepTick) -> None:
        """Append a note if the file is not full. Of one attempt at a step, a note that repeats the last one or
        comes too soon is dropped, unless it is a heartbeat."""
        last = self._last_tick
        is_same_attempt = last is not None and (last.key, last.attempt) == (tick.key, tick.attempt)
        if last is not None and is_same_attempt and not tick.heartbeat:
            is_too_soon = tick.seconds - last.seconds < MIN_INTERVAL_S
            if tick.note == last.note or is_too_soon:
                return
        self._last_tick = tick
        with contextlib.suppress(OSError):
            if not self._path.exists() or self._path.stat().st_size < MAX_TICK_BYTES:
                sums.append_sealed(self._path, json.dumps(tick.model_dump(mode="json")))


def read_ticks(path: Path) -> list[StepTick]:
    """All readable ticks; empty when the file is missing. Reports damaged lines and skips them."""
    with contextlib.suppress(OSError):
        return list(sums.sealed_lines(path, StepTick))
    return []


def make_store(folder: SessionFolder, journal: Journal) -> Callable[[WalkEvent], WalkEvent]:
    """A `store` for `drive`: appends records to the journal, writes samples and ticks to files."""
    ticks = TickFile(folder.path / TICKS)

    def store(event: WalkEvent) -> WalkEvent:
        """Write an event. Returns it; for an ended step with the names of its sample files."""
        if isinstance(event, Ticked):
            attempt = event.started.model_dump(include={"run", "pattern", "step", "attempt"})
            seconds = max(0.0, event.seconds)
            ticks.add(StepTick(seconds=seconds, note=event.note, heartbeat=event.heartbeat, **attempt))
        elif isinstance(event, StepBegan):
            journal.append(event.started)
        elif isinstance(event, StepEnded) and not event.replayed:
            record, files = event.finished, list[str]()
            prefix = f"{record.run}-{record.step}-{record.attempt}"
            for name, segments in event.samples.items():  # First, because the record names their files.
                files.append(folder.write_samples(f"{prefix}-{name}", segments))
            event = StepEnded(record.model_copy(update={"artifacts": tuple(files)}), event.samples)
            journal.append(event.finished)
        return event

    return store

"""Drives a walk: writes each event to disk, shows it, checks the limits, then asks for the next one."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from loop.base.documents import to_json
from loop.base.errors import ExitCode, LoopError, Stopped
from loop.base.interrupts import raise_if_signalled, signals_as_flags
from loop.base.machine_failures import find_machine_failure
from loop.base.screen import Screen, seconds_text
from loop.model.record import Finished, Started, StepTick
from loop.session.bounds import Bounds, Ending, broken_off
from loop.session.walk import Happening, PatternBegan, PatternEnded, StepBegan, StepDue, StepEnded, Ticked, Walk
from loop.store.journal import Journal
from loop.store.sessions import SessionFolder
from loop.store.ticks import NAME as TICKS
from loop.store.ticks import Ticks

KEY = {"run", "pattern", "step", "attempt"}
"""Fields that identify one attempt at a step."""


@dataclass
class Show:
    """Prints the events of a walk: a live status line in a terminal, else one plain line a step."""

    screen: Screen
    as_events: bool = False
    """Whether each event is also written to stdout as a line of JSON."""
    recall: Callable[[Finished], Sequence[str]] = lambda record: ()
    """Takes a failed step; returns lines about the same failure in earlier sessions."""
    begun: Started | None = None
    """The last step whose begin was printed when the output is no terminal."""
    skipped: set[tuple[str, str]] = field(default_factory=set)
    """(pattern, reason) of skipped steps already printed: a second step with that reason is not."""

    def event(self, event: Happening) -> None:
        """Print one event."""
        if self.as_events:
            self._emit(event)
        if isinstance(event, PatternBegan):
            self.screen.say(f"[{event.index}/{event.of}] {event.title}")
        elif isinstance(event, Ticked):
            step, budget = event.started, seconds_text(event.started.budget_s)
            now = f"{seconds_text(event.seconds)} of about {budget}"
            self.screen.status(f"  {step.index}/{step.of} {step.step}: {event.note} ({now})")
            if not self.screen.may_animate and self.begun != step:
                self.begun = step
                self.screen.say(f"  begins   {step.step} (about {budget})")
            if event.heartbeat and not self.screen.may_animate:
                self.screen.say(f"  {step.index}/{step.of} {step.step}: still at it, {event.note} ({now})")
        elif isinstance(event, StepEnded):
            self._ended(event)
        elif isinstance(event, PatternEnded) and event.answered_by:
            self.screen.say(f"  {event.name} {event.status}: {event.answered_by} answers")

    def _ended(self, event: StepEnded) -> None:
        """Print how a step ended, and its hint; one line for steps skipped for one reason."""
        record = event.finished
        why = (record.pattern, record.skipped_because)
        if why in self.skipped:
            return
        if record.skipped_because:
            self.skipped.add(why)
        took = f"{seconds_text(record.seconds)} of {seconds_text(record.budget_s)}"
        again = ", as before" if event.replayed else ""
        text = f" {record.step} ({took}{again}): {record.message}"
        self.screen.outcome(record.status, text, prefix="  ", status_columns=8)
        if record.status in ("failed", "paused") and record.hint:
            self.screen.say(f"           next: {record.hint}")
        for line in self.recall(record) if record.status == "failed" else ():
            self.screen.say(f"           {line}")

    def _emit(self, event: Happening) -> None:
        """Write an event to stdout as a line of JSON."""
        if isinstance(event, StepDue) or (isinstance(event, Ticked) and not event.heartbeat):
            return
        if isinstance(event, StepBegan | Ticked):
            fields = event.started.model_dump(mode="json")
        elif isinstance(event, StepEnded):
            recalled = list(self.recall(event.finished))
            fields = {**event.finished.model_dump(mode="json"), "seen_before": recalled}
        else:
            fields = vars(event)
        self.screen.data(to_json({"schema_version": 1, "happening": type(event).__name__, **fields}, None))


def drive(walk: Walk, show: Show, store: Callable[[Happening], Happening], bounds: Bounds | None = None) -> Ending:
    """Run a walk until it ends, or a limit, a signal or a machine failure stops it. Returns how it ended.

    `store` makes each event durable. If the disk is full, the reserve file is deleted to make room for
    the record of the interrupted step. Any error of another kind is raised.
    """
    begun, bounds = time.monotonic(), bounds or Bounds()
    last: Happening | None = None
    with closing(walk.events()) as events:
        try:
            with signals_as_flags():
                raise_if_signalled()
                for event in events:
                    last = store(event)
                    show.event(last)
                    bounds.hold(last, time.monotonic() - begun)
                    raise_if_signalled()
        except (Stopped, LoopError, OSError, MemoryError) as error:
            events.close()
            stop = error if isinstance(error, Stopped) else find_machine_failure(error, walk.folders)
            if stop is None:
                raise
            ending = broken_off(stop)
            bounds.give_room()
            if isinstance(last, StepBegan | Ticked):
                show.event(store(StepEnded(_open_step(walk, last, ending))))
            return ending
    if walk.failure is not None:
        bounds.give_room()
        return broken_off(walk.failure)
    if walk.paused:
        return Ending("paused", walk.stopped or "", ExitCode.PAUSED)
    code = ExitCode.BUG if walk.bug else ExitCode.OK
    if not walk.enough:
        return Ending(None, walk.stopped or "", code)
    reached = f"the plan stops where `{walk.resolved.plan.stop_if}` is true"
    show.screen.say(f"no further step is begun: {reached}")
    return Ending(None, walk.stopped or "", code, reached)


def _open_step(walk: Walk, last: StepBegan | Ticked, ending: Ending) -> Finished:
    """The record of the step that was running when the walk was interrupted. `last`: its last event."""
    started, shop = last.started, walk.context.task.workshop
    step = next(s for s in walk.resolved.find_pattern(started.pattern).pattern.steps if s.id == started.step)
    status = ending.status or "aborted"
    return Finished(
        **started.model_dump(include={*KEY, "budget_s"}),
        status=status,
        seconds=last.seconds if isinstance(last, Ticked) else 0.0,
        message=ending.reason,
        hint=f"{ending.to_go_on}: {shop.resume}" if status == "paused" and shop else None,
        action=step.action,
    )


def store_into(folder: SessionFolder, journal: Journal) -> Callable[[Happening], Happening]:
    """A `store` for `drive`: appends records to the journal, writes samples and ticks to files."""
    ticks = Ticks(folder.path / TICKS)

    def store(event: Happening) -> Happening:
        if isinstance(event, Ticked):
            key = event.started.model_dump(include=KEY)
            seconds = max(0.0, event.seconds)
            ticks.add(StepTick(seconds=seconds, note=event.note, heartbeat=event.heartbeat, **key))
        elif isinstance(event, StepBegan):
            journal.append(event.started)
        elif isinstance(event, StepEnded) and not event.replayed:
            record = event.finished
            written = tuple(  # Samples first: the record names their files.
                folder.write_samples(f"{record.run}-{record.step}-{record.attempt}-{name}", rows)
                for name, rows in event.samples.items()
            )
            event = StepEnded(record.model_copy(update={"artifacts": written}), event.samples)
            journal.append(event.finished)
        return event

    return store

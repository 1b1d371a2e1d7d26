"""What may end a session before its plan is done: minutes, dollars, and a cloud that takes the machine away."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loop.base.documents import nearest
from loop.base.errors import ExitCode, MachineFailure, Stopped, UsageError
from loop.base.screen import seconds_text
from loop.cloud import CHOICES, Watch
from loop.model.metering import AiUse
from loop.model.money import RateCard
from loop.model.record import Line, SessionHead, Status
from loop.money.charging import Charged, Used, charge
from loop.session.allowance import Allowance, expected_steps, seconds_for
from loop.session.events import Happening, StepBegan, StepDue, Ticked
from loop.store import sessions


@dataclass(frozen=True)
class Ending:
    """How a walk ended."""

    status: Status | None
    """None when it ran to its end: its records say how."""
    reason: str
    exit_code: int
    not_reached: str = "the session did not get there"
    """Why steps were left undone."""
    cut: bool = False
    """Whether a bound broke it off, and the step that was under way."""
    unwatched: tuple[str, ...] = ()
    """What has to be said of the watch over the machine."""
    mend: str = ""
    """What has to be done before it can go on."""

    @property
    def to_go_on(self) -> str:
        """What is said before the command that goes on."""
        if self.mend:
            return f"{self.mend}; then go on with"
        return "go on, with more or no budget" if self.exit_code == ExitCode.OVER_BUDGET else "go on with"


def broken_off(stop: Stopped) -> Ending:
    """How a walk ended that was broken off."""
    if stop.exit_code == ExitCode.PAUSED:
        return Ending("paused", str(stop), stop.exit_code, "the session was paused before it was done", cut=True)
    if stop.exit_code == ExitCode.OVER_BUDGET:
        return Ending("aborted", str(stop), stop.exit_code, "the budget did not reach so far", cut=True)
    return Ending("aborted", str(stop), stop.exit_code)


def failed_by(failure: MachineFailure) -> Ending:
    """How a walk ended whose machine failed."""
    reached = "the machine failed before it was done"
    return Ending("paused", failure.message, failure.exit_code, reached, cut=True, mend=failure.hint or "")


@dataclass
class Bounds:
    """What may end a walk before its plan is done."""

    allowance: Allowance | None = None
    """Time and money that it was given."""
    watch: Watch | None = None
    """Whether the machine is about to be taken away."""
    resume: str = ""
    """The command that goes on with the session."""
    reserve: Path | None = None
    """A file that makes room on a full disk for the last lines."""

    def give_room(self) -> None:
        """Give up the reserve."""
        if self.reserve is not None:
            with contextlib.suppress(OSError):
                self.reserve.unlink(missing_ok=True)

    def hold(self, event: Happening, walked_s: float) -> None:
        """Raise Stopped where the walk has to end at this event."""
        if self.watch is not None and self.watch.notice is not None:
            raise Stopped(self.watch.notice.text, ExitCode.PAUSED)
        why = _over(self.allowance, event, walked_s) if self.allowance else None
        if why is not None:
            raise Stopped(why, ExitCode.OVER_BUDGET)

    def closed(self, ending: Ending) -> Ending:
        """The ending, with what has to be said of the watch, which ends."""
        if self.watch is None:
            return ending
        self.watch.close()
        return replace(ending, unwatched=self.watch.unwatched())


def _over(allowance: Allowance, event: Happening, walked_s: float) -> str | None:
    """Before a step: whether it fits. While one runs: whether there is time left."""
    if isinstance(event, StepDue):
        return allowance.refuses(event.pattern, event.step, walked_s)
    return allowance.exceeded(walked_s) if isinstance(event, StepBegan | Ticked) else None


@dataclass(frozen=True)
class Asked:
    """What the user allows a session."""

    minutes: float | None = None
    """Minutes of all its walks together."""
    usd: float | None = None
    """Dollars, likewise."""
    watch: str = "auto"
    """Which cloud is watched."""

    def check(self, head: SessionHead, card: RateCard) -> None:
        """Raises LoopError for what is no amount, no cloud, or not enough to begin with."""
        for option, value in (("--budget-minutes", self.minutes), ("--max-usd", self.usd)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{option} {value:g}: expected a number above 0", hint=f"{option} 10")
        if self.watch not in CHOICES:
            close = nearest(self.watch, CHOICES) or [", ".join(CHOICES)]
            raise UsageError(f"unknown cloud {self.watch!r} to watch", hint=f"--watch-preemption {close[0]}")
        if self.usd is not None:
            refuse_too_little(self.usd, card, head)


def make_bounds(
    asked: Asked, head: SessionHead, card: RateCard, lines: Sequence[Line], ai: AiUse | None
) -> Bounds:
    """The bounds of a session whose journal holds `lines`; its watch has begun.

    `ai`: what agents have used by now, where that is measured or stated.
    """
    return Bounds(
        allowance=allowance_of(asked, head, card, lines, ai),
        watch=Watch(asked.watch).start(),
        resume=head.resume_command,
    )


def allowance_of(
    asked: Asked, head: SessionHead, card: RateCard, lines: Sequence[Line], ai: AiUse | None
) -> Allowance | None:
    """The stricter of minutes and dollars; None where neither is bounded."""
    limits = []
    if asked.minutes is not None:
        limits.append((asked.minutes * 60, seconds_text(asked.minutes * 60)))
    if asked.usd is not None:
        seconds = seconds_for(asked.usd, lambda s: spent_usd(s, card, head, ai))
        used = f" beside ${ai.usd:.4f} of AI" if ai is not None and ai.usd else ""
        limits.append((seconds, f"${asked.usd:g}, which lasts for {seconds_text(seconds)}{used}"))
    if not limits:
        return None
    limit_s, words = min(limits)
    return Allowance(limit_s, words, sessions.wall_seconds(lines)[0], expected_steps(head.plan))


def refuse_too_little(usd: float, card: RateCard, head: SessionHead) -> None:
    """Raises LoopError where a session cannot begin for so few dollars, or where nobody knows what it costs."""
    unpriced = [one.reason for one in _charged(0.0, card, head).unmeasured if one.resource == "gpu"]
    if unpriced:
        raise UsageError(f"--max-usd {usd:g}: what the GPU costs is not known", hint=unpriced[0])
    least = spent_usd(0.0, card, head)
    if least >= usd:
        raise UsageError(
            f"--max-usd {usd:g}: ${least:.4f} is charged as soon as a GPU is held, for its first minute",
            hint="allow more; `loop cost rates` shows the prices",
        )


def spent_usd(seconds: float, card: RateCard, head: SessionHead, ai: AiUse | None = None) -> float:
    """What that many seconds of a session are charged, and what its AI was."""
    return sum(one.usd for one in _charged(seconds, card, head, ai).charges)


def _charged(seconds: float, card: RateCard, head: SessionHead, ai: AiUse | None = None) -> Charged:
    return charge(Used(seconds=seconds, device=head.device, gpu=head.gpu, ai=ai), card.attended(head.attended))

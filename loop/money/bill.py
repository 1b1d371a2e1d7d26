"""What did a session cost, and what did it spare? Measured use, dated prices, nothing that did not happen here."""

import datetime
from collections.abc import Iterable, Mapping, Sequence

from loop.base.stats import median
from loop.gate.model import BuildOutput
from loop.model.history import History
from loop.model.index import SessionRow
from loop.model.money import Bill, Gains, Prior, RateCard, Saving
from loop.model.output import read_output
from loop.model.pattern import Pattern, Without
from loop.model.record import Finished
from loop.money.charging import Used, charge, rates_of


def spared(finished: Iterable[Finished], usd_per_minute: float) -> tuple[Saving, ...]:
    """Compiling that the cache spared, pattern by pattern: what the very same build took when it was compiled.

    Each build counts once a session, and not at all where an earlier attempt of this very session compiled it.
    """
    seen: set[str] = set()
    found: dict[str, dict[str, float]] = {}
    for record in finished:
        output = read_output(record, BuildOutput)
        for build in output.builds if output else ():
            fresh = build.build_id not in seen
            seen.add(build.build_id)
            if fresh and build.cached and record.status == "passed":
                found.setdefault(record.pattern, {})[build.variant] = build.seconds
    return tuple(_spared(pattern, seconds, usd_per_minute) for pattern, seconds in found.items())


def _spared(pattern: str, seconds: Mapping[str, float], usd_per_minute: float) -> Saving:
    minutes = sum(seconds.values()) / 60
    source = f"{', '.join(seconds)} from the cache; compiling took {60 * minutes:.1f} s then"
    return Saving(pattern=pattern, source=source, minutes=minutes, usd=minutes * usd_per_minute)


def judged_before(rows: Iterable[SessionRow], ground: str) -> bool:
    """Whether an earlier session came to its end on the same files: to repeat it spares nothing."""
    return any(row.ground == ground and row.status in ("passed", "failed") for row in rows)


def priors(
    patterns: Iterable[Pattern], histories: Sequence[History], rows: Sequence[SessionRow]
) -> tuple[Prior, ...]:
    """What others lost without each of these patterns, and how often such a failure occurs here.

    `rows`: earlier sessions of the target. A failure counts where the same files passed in another session: then
    something else was wrong, and not an edit.
    """
    found = []
    for pattern in patterns:
        lost = _lost(pattern.without, histories) if pattern.without else None
        if lost is not None:
            runs = [(row.ground, run) for row in rows for run in row.runs if run.pattern == pattern.name]
            good = {ground for ground, run in runs if run.status == "passed"}
            failures = sum(run.found and ground in good for ground, run in runs)
            told = sum(run.success is not None for _, run in runs)
            minutes, source = lost
            found.append(
                Prior(pattern=pattern.name, minutes=minutes, source=source, failures=failures, sessions=told)
            )
    return tuple(found)


def _lost(without: Without, histories: Sequence[History]) -> tuple[float, str] | None:
    """Minutes by the recorded rows, else by the author's word; with whose they are."""
    rows = [row for one in histories if without.history for row in one.minutes_without(without.history).items()]
    if rows:
        whose = ", ".join(f"{name} {lost:g}" for name, lost in rows)
        return median([lost for _, lost in rows]), f"{whose} min"
    return (without.minutes, without.evidence) if without.minutes is not None else None


def bill(
    used: Used,
    card: RateCard,
    finished: Sequence[Finished] = (),
    *,
    priors: Sequence[Prior] = (),
    gains: Gains | None = None,
    notes: Sequence[str] = (),
    today: datetime.date | None = None,
) -> Bill:
    """Cost and saving of a session.

    `used`: what it used. A GPU is charged where the session ran on one, a person where the card names one.
    `finished`: its ended steps, for builds that the cache spared; none where it only repeats an earlier session.
    """
    charged = charge(used, card, today)
    usd = sum(one.usd for one in charged.charges)
    per_minute = sum(rate.usd_per_hour for rate in rates_of(card, used.device, used.gpu)) / 60
    savings = spared(finished, per_minute)
    saved_usd = sum(one.usd for one in savings)
    return Bill(
        charges=charged.charges,
        unmeasured=charged.unmeasured,
        savings=savings,
        usd=usd,
        saved_usd=saved_usd,
        roi=(saved_usd - usd) / usd if usd > 0 and savings else None,
        priors=tuple(priors),
        ai=used.ai,
        energy_j=used.energy_j,
        gains=gains or Gains(),
        notes=(*notes, *charged.notes),
    )

"""What the index says of many sessions at once: plain tuples, so that thousands cost nothing to make."""

from typing import NamedTuple


class Listed(NamedTuple):
    """What a list says of one session folder; None: not known, or not yet."""

    folder: str
    """Name of the folder."""
    target: str | None
    """Name of the target."""
    plan: str | None
    """Name of the plan."""
    device: str | None
    """Where it ran."""
    status: str | None
    """How it ended; None while it is open."""
    grade: str | None
    """Its letter."""
    seconds: float | None
    """Wall time."""
    usd: float | None
    """What it cost."""
    fastest: str | None
    """The variant with the best mean ratio."""
    recorded: bool
    """Whether it was recorded elsewhere."""
    problem: str
    """What is wrong with its files; empty where nothing is."""
    copy_of: str | None
    """The session that it is a copy of, and is counted as."""
    readable: bool
    """Whether anything could be read of it."""


class Tally(NamedTuple):
    """Runs of one pattern in one environment, summed up."""

    pattern: str
    """Name of the pattern."""
    place: tuple[str | None, ...]
    """Its environment: the values of `Environment`, in the order of its fields."""
    successes: int
    """Runs that came to an answer."""
    passed: int
    """Those of them that passed."""
    broken: int
    """Runs that ended with an error of their own."""
    timed: int
    """Runs with a time of all their steps."""
    log_sum: float
    """Sum of the logarithms of their seconds."""
    log_squares: float
    """Sum of the squares of these."""
    last: str
    """When the last one began."""
    session: str
    """The last session."""


class Saved(NamedTuple):
    """Savings of one pattern in one class of evidence, summed up."""

    pattern: str
    """Name of the pattern."""
    evidence: str
    """Class of evidence."""
    sessions: int
    """Sessions in which it saved something."""
    minutes: float
    """Sum of the minutes avoided."""
    minutes_low: float
    """The same from the most favourable rows."""
    minutes_high: float
    """The same from the least favourable rows."""
    usd: float
    """Sum of the dollars."""

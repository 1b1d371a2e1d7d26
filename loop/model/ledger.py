"""The ledger: what sessions cost, saved and brought, as plain tuples, so that thousands of them cost nothing."""

from typing import NamedTuple


class Spent(NamedTuple):
    """One charge of one session."""

    session: str
    """Id of the session."""
    resource: str
    """What was used."""
    rate: str
    """Name of the rate; for AI, where the figure comes from."""
    seconds: float
    """Measured use."""
    usd: float
    """What it cost."""
    basis: str
    """`measured` or `stated`."""


class Avoided(NamedTuple):
    """One saving of one session."""

    session: str
    """Id of the session."""
    pattern: str
    """What avoided it."""
    evidence: str
    """measured, history or prior."""
    minutes: float
    """Minutes avoided."""
    minutes_low: float
    """The same from the most favourable row."""
    minutes_high: float
    """The same from the least favourable row."""
    usd: float
    """Dollars avoided."""
    usd_low: float
    """The same of `minutes_low`."""
    usd_high: float
    """The same of `minutes_high`."""


class Worked(NamedTuple):
    """One run of a pattern."""

    session: str
    """Id of the session."""
    pattern: str
    """Name of the pattern."""
    seconds: float
    """How long it took."""


class Account(NamedTuple):
    """One session, without its charges."""

    session: str
    """Its id."""
    started: str | None
    """When it began, UTC, as ISO 8601 writes it; None where it was recorded without a clock."""
    target: str
    """Name of its target."""
    plan: str
    """Name of its plan."""
    device: str
    """Where it ran."""
    gpu: str | None
    """The GPU it ran on."""
    status: str | None
    """How it ended; None while it is open."""
    seconds: float
    """How long it took."""
    recorded: bool
    """Whether it was recorded elsewhere."""
    energy_j: float | None
    """Joules that the GPU took while it was measured."""
    accepted: int
    """Changes that were kept."""
    accepted_us: float | None
    """Microseconds a call that they save."""
    unmeasured: dict[str, str]
    """Resource to the reason why it has no figure."""
    judged: dict[str, bool]
    """Variant to whether the gate let it through."""
    notes: tuple[str, ...]
    """What a reader has to know of its figures."""


class Book(NamedTuple):
    """Everything that the ledger is made of, sessions in order."""

    accounts: tuple[Account, ...]
    """Sessions, oldest first."""
    spent: tuple[Spent, ...]
    """Charges."""
    avoided: tuple[Avoided, ...] = ()
    """Savings."""
    worked: tuple[Worked, ...] = ()
    """Runs."""
    damaged: tuple[tuple[str, str], ...] = ()
    """Folders with something wrong: name and reason."""

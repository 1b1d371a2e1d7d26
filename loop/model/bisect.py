"""A search for the commit of a regression: candidates, what was observed of them, and the answer."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model

Outcome = Literal["culprit", "several", "range", "no_regression", "inconclusive", "refused"]
Metric = Literal["latency", "correctness", "exit", "number"]
UNCOMMITTED = "uncommitted"
"""Stands for the hash of what is in the checkout and in no commit."""


class Candidate(Model):
    """A commit that may have brought the regression, or the checkout's uncommitted changes."""

    commit: str
    """Its hash, or `uncommitted`."""
    subject: str
    """First line of its message; for uncommitted changes the files."""
    author: str = ""
    """Who wrote it."""
    when: datetime.datetime | None = None
    """When."""
    merge: bool = False
    """Whether it has several parents."""
    touches: bool = True
    """Whether it changes a file that the kernel is built from."""
    tree: str = ""
    """Hash of everything that it is built from: candidates with the same one are the same kernel."""

    @property
    def short(self) -> str:
        """The hash as people are shown it."""
        return self.commit[:12]


class Probe(Model):
    """What came of trying one candidate once."""

    commit: str
    """Hash of the candidate, or of the good end."""
    status: Literal["measured", "broken", "lost"]
    """It was tried; it cannot be; or something else went wrong, which says nothing of it."""
    values: tuple[float, ...] = ()
    """Latency: log ratios of the good end's time to its own, one a pair. Correctness: 1 for right, 0 for wrong."""
    why: str = ""
    """Why it is broken or lost."""
    seconds: float = 0.0
    """How long it took, building included."""
    built: bool = False
    """Whether something was compiled for it."""
    build_id: str = ""
    """The build that was tried; empty for a command."""
    again: int = 0
    """Which of several builds of the same source it is: their functions lie in other places."""


class Answer(Model):
    """What a search found."""

    outcome: Outcome
    """What kind of answer it is."""
    why: str
    """What it rests on, in a sentence."""
    culprits: tuple[Candidate, ...] = ()
    """The commits that brought it; one, or several."""
    range: tuple[Candidate, ...] = ()
    """The commits one of which did, where they cannot be told apart."""
    posterior: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    """Hash to probability, of those above one per mille."""
    ratio: float | None = None
    """Time of the culprit's parent over its own, by the confirming test."""
    probes: tuple[Probe, ...] = ()
    """Everything that was tried, in order."""
    builds: int = 0
    """How many were compiled."""
    skipped: dict[str, str] = Field(default_factory=dict)
    """Hash to why it could not be tried."""
    log: str = ""
    """A log that `git bisect replay` takes."""
    difference: str = ""
    """What the culprit changed in the kernel's sources, as a patch."""

"""A campaign: who proposes changes, when it ends, and what became of each proposal."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.money import AiUse

PERSON, TUNER = "person", "tuner"
"""Proposers that are no command: the session pauses for one, and searches values itself for the other."""
Positive = Annotated[float, Field(gt=0)]
Ended = Literal[
    "edited", "unedited", "done", "failed", "deadline", "stalled", "limited", "login", "uncompiled", "conflict",
    "repeated", "interrupted",
]  # fmt: skip
"""How a proposal ended: with an edit to be judged, or without one."""
WORDS: dict[Ended, str] = {
    "edited": "an edit",
    "unedited": "it edited nothing that may change",
    "done": "it said that it has nothing more to propose",
    "failed": "it ended with an error",
    "deadline": "it was ended at its deadline",
    "stalled": "it was ended, for it printed nothing any more",
    "limited": "its provider refused it for its rate until the deadline",
    "login": "it has to be logged in",
    "uncompiled": "its edit does not compile",
    "conflict": "its edit conflicts with a change kept meanwhile",
    "repeated": "its edit was judged before",
    "interrupted": "the session was interrupted while it worked",
}


class Campaign(Model):
    """What was asked of `loop optimize`; kept with the session, and so over a resume."""

    proposer: str = PERSON
    """A command, a preset, `tuner` or `person`."""
    width: Annotated[int, Field(ge=1, le=256)] = 1
    """Candidates that are proposed at a time, and jobs of an executor."""
    executor: Literal["", "local", "ssh", "ray", "slurm"] = ""
    """Who runs parts of a step as jobs; empty: they are done in this process, one after the other."""
    proposer_minutes: Positive = 30.0
    quiet_minutes: Positive = 10.0
    """After so long without output it is ended."""
    candidates: Annotated[int, Field(ge=1)] | None = None
    minutes: Positive | None = None
    usd: Positive | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    gpu_s: Positive | None = None
    stall: Annotated[int, Field(ge=1)] = 6
    """It ends when nothing was kept in so many candidates."""
    target: Annotated[float, Field(gt=1)] | None = None
    """It ends when the kept changes make a variant so many times as fast."""
    env: tuple[str, ...] = ()
    """Variables that the proposer sees besides."""

    @property
    def unattended(self) -> bool:
        """Whether a command proposes."""
        return self.proposer not in (PERSON, TUNER)


class Proposal(Model):
    """One run of a proposer: how it ended, and what it used."""

    number: Annotated[int, Field(ge=1)]
    ended: Ended
    said: str = ""
    """Its last line, or why it ended so."""
    idea: str = ""
    seconds: float = 0.0
    use: AiUse | None = None
    """What it used; None where it did not begin."""
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Files that it edited and that may not change: not taken."""
    patch: str = ""
    isolated: bool = False
    """Whether it saw nothing but its folder and its own configuration."""

    @property
    def text(self) -> str:
        """How it ended, in words."""
        detail = "" if self.ended == "edited" else self.said
        if self.ended == "unedited" and self.left_out:
            detail = f"{', '.join(self.left_out)} may not"
        return f"{WORDS[self.ended]}{f': {detail}' if detail else ''}"

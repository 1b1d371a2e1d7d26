"""A campaign of `loop optimize`: the proposer, the limits, and the result of each proposal."""

from typing import Annotated, Literal

from pydantic import Field

from loop.model.base import Model
from loop.model.money import AiUse
from loop.model.plan import Positive

PERSON, TUNER = "person", "tuner"
"""Proposers that are no command: for `person` the session pauses; `tuner` searches values."""
Ended = Literal[
    "edited", "unedited", "done", "failed", "deadline", "stalled", "login", "uncompiled",
    "conflict", "repeated", "interrupted",
]  # fmt: skip
"""How a proposal ended. Only `edited` gives an edit for the gate to judge."""
ENDING_TEXTS: dict[Ended, str] = {
    "edited": "an edit",
    "unedited": "it edited nothing that may change",
    "done": "it said that it has nothing more to propose",
    "failed": "it ended with an error",
    "deadline": "it was ended at its deadline",
    "stalled": "it was ended, for it printed nothing any more",
    "login": "it has to be logged in",
    "uncompiled": "its edit does not compile",
    "conflict": "its edit conflicts with a change kept meanwhile",
    "repeated": "its edit was judged before",
    "interrupted": "the session was interrupted while it worked",
}


class Campaign(Model):
    """Options of `loop optimize`. The session stores them for a resume."""

    proposer: str = PERSON
    """Who proposes changes: a command, a preset, `tuner` or `person`."""
    width: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of candidates proposed in parallel, and of parallel jobs of an executor."""
    executor: Literal["", "local", "ssh", "ray", "slurm"] = ""
    """System that runs parts of a step as jobs; empty: this process runs one after the other."""
    proposer_minutes: Positive = 30.0
    quiet_minutes: Positive = 10.0
    """Minutes without output after which the proposer is ended."""
    candidates: Annotated[int, Field(ge=1)] | None = None
    minutes: Positive | None = None
    usd: Positive | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    stall: Annotated[int, Field(ge=1)] = 6
    """The campaign ends after so many candidates in a row without a kept change."""
    target: Annotated[float, Field(gt=1)] | None = None
    """The campaign ends when kept changes reach this speedup of a variant."""
    env: tuple[str, ...] = ()
    """Additional environment variables that the proposer sees."""

    @property
    def is_unattended(self) -> bool:
        """Whether the proposer is a command, neither a person nor the tuner."""
        return self.proposer not in (PERSON, TUNER)


class Proposal(Model):
    """One run of a proposer: its end, its edit and its AI use."""

    number: Annotated[int, Field(ge=1)]
    ended: Ended
    said: str = ""
    """The proposer's last line, or the reason for this end."""
    idea: str = ""
    seconds: float = 0.0
    use: AiUse | None = None
    """AI use; None if the proposer did not start."""
    files: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """Edited files that may not change. Their edits were discarded."""
    patch: str = ""
    isolated: bool = False
    """Whether the proposer could read only its folder and its own configuration."""

    @property
    def text(self) -> str:
        """How the proposal ended: `it edited nothing that may change: target.yaml may not`."""
        detail = "" if self.ended == "edited" else self.said
        if self.ended == "unedited" and self.left_out:
            detail = f"{', '.join(self.left_out)} may not"
        return f"{ENDING_TEXTS[self.ended]}{f': {detail}' if detail else ''}"

"""What coding agents used: tokens by model, priced where the price is known."""

from typing import Literal

from loop.model.base import Count, Model

AiSource = Literal["result", "logs", "stated"]


class Tokens(Model):
    """Tokens of one call or of many. The five kinds are disjoint: none is counted in another."""

    input: Count = 0
    """Read, and not from a cache."""
    output: Count = 0
    """Written, thoughts included."""
    cache_read: Count = 0
    """Read from a cache."""
    cache_write: Count = 0
    """Put into a cache that lasts five minutes."""
    cache_write_1h: Count = 0
    """Put into a cache that lasts an hour."""
    searches: Count = 0
    """Searches of the web."""

    @property
    def total(self) -> int:
        """All tokens."""
        return self.input + self.output + self.cache_read + self.cache_write + self.cache_write_1h

    def plus(self, other: "Tokens") -> "Tokens":
        """Both together."""
        theirs = other.__dict__
        return Tokens.model_construct(**{name: mine + theirs[name] for name, mine in self.__dict__.items()})


class ModelUse(Model):
    """What one model was used for."""

    model: str
    """Its name, as the agent wrote it."""
    calls: Count
    """How often it was called; 0 where that is not told."""
    tokens: Tokens
    """What it read and wrote."""
    usd: float | None
    """What that cost; None where its price is not known."""


class AiUse(Model):
    """What agents used in a session, from the best source there was."""

    source: AiSource
    """An agent's own result, somebody's word, or, in sessions of older versions, agents' logs."""
    agents: tuple[str, ...] = ()
    """Which agents: `claude-code`, `codex`."""
    models: tuple[ModelUse, ...] = ()
    """Model by model; none for a stated amount."""
    usd: float | None
    """What is known to have been paid; None where nothing is known."""
    unpriced: tuple[str, ...] = ()
    """Models whose price is not known: what they cost comes on top."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""

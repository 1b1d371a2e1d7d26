"""The nouns of what earlier sessions say: failures seen before with their cures."""

from collections import Counter

from loop.model.base import Model


class Cure(Model):
    """The first later session in which the same step passed, and what had changed since it failed."""

    failed: str
    """The session in which it failed."""
    session: str
    """The session in which it passed; the same one where that was resumed."""
    environment: tuple[str, ...] = ()
    """Facts that changed: `torch 2.3.0 -> 2.4.1`."""
    commits: tuple[str, str] | None = None
    """Revisions of the target then and at the cure, where both were committed and differ."""
    sources: bool = False
    """Whether the target's files had changed."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of what had changed: `torch`, `sources`."""
        named = tuple(text.split(" ", 1)[0] for text in self.environment)
        return (*named, "sources") if self.sources else named


class Memory(Model):
    """A failure that was seen before."""

    sessions: tuple[str, ...]
    """Where, the last first."""
    cures: tuple[Cure, ...] = ()
    """What cured it, the last first, each session once; of the last meetings alone."""

    @property
    def cure(self) -> Cure | None:
        """What cured it the last time that anything did."""
        return self.cures[0] if self.cures else None

    @property
    def suspects(self) -> tuple[tuple[str, int], ...]:
        """What had changed at its cures, and at how many: most often first, then by the last cure.

        What cures a failure changes at every cure; what merely happened to change at one seldom does at the next.
        """
        counts = Counter(name for cure in self.cures for name in cure.changed)
        return tuple(sorted(counts.items(), key=lambda one: -one[1]))

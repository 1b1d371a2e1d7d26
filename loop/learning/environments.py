"""How much does what one environment showed say of another? A weight for each fact that differs."""

from collections.abc import Sequence

from loop.model.index import SessionRow

FACTS = ("processor", "gpu", "driver", "cuda", "torch", "compiler")
"""In the order of the fields of `Environment`."""
WEIGHTS = {"processor": 0.5, "gpu": 0.25, "driver": 0.5, "cuda": 0.5, "torch": 0.5, "compiler": 0.5}
"""What a run is worth where this fact differs: half for a toolchain or a processor, a quarter for another GPU."""

Place = Sequence[str | None]
"""The facts of an environment, in the order of FACTS; None: not known."""


def place_of(row: SessionRow) -> tuple[str | None, ...]:
    """The facts of a session's environment."""
    return tuple(getattr(row.environment, name) for name in FACTS)


def alike(one: Place, other: Place) -> float:
    """What a run in one environment is worth in another: 1 where all known facts agree."""
    weight = 1.0
    for name in changed(one, other):
        weight *= WEIGHTS[name]
    return weight


def changed(one: Place, other: Place) -> tuple[str, ...]:
    """The facts that differ; a fact that one side does not know is no difference, but a GPU or none is one."""
    pairs = zip(FACTS, one, other, strict=True)
    return tuple(name for name, mine, its in pairs if mine != its and (name == "gpu" or (mine and its)))


def in_words(place: Place) -> str:
    """`NVIDIA L4, driver 550, CUDA 12.4, torch 2.4.1`."""
    known = dict(zip(FACTS, place, strict=True))
    words = [known["gpu"] or known["processor"] or "unknown"]
    words += [f"{label} {known[name]}" for name, label in (("driver", "driver"), ("cuda", "CUDA")) if known[name]]
    return ", ".join(words + ([f"torch {known['torch']}"] if known["torch"] else []))

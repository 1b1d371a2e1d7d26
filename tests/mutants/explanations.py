"""Why mutants survived: one reason for each group of them, in `explanations.yaml`, by their identity."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("explanations.yaml")
VERDICTS = {
    "equivalent": "nothing that can be seen changes",
    "slower": "the same results with more work, or with less overlap",
    "hole": "a mistake that nothing here finds",
}


@dataclass(frozen=True)
class Reason:
    """Why a group of mutants survived."""

    verdict: str
    because: str


def explanations(path: Path = FILE) -> Mapping[str, Reason]:
    """Mutant to reason. Raises ValueError when a mutant is named twice or a verdict is none."""
    found: dict[str, Reason] = {}
    for group in yaml.safe_load(path.read_text()) or []:
        reason = Reason(group["verdict"], " ".join(group["because"].split()))
        if reason.verdict not in VERDICTS:
            raise ValueError(f"{path.name}: {reason.verdict!r} is none of {', '.join(VERDICTS)}")
        for key in group["mutants"]:
            if key in found:
                raise ValueError(f"{path.name}: {key!r} is named twice")
            found[key] = reason
    return found

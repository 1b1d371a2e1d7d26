"""All mutants: what the operators make of the sources, thinned by a rule, and the history's own mistakes."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.mutants.history import HISTORY
from tests.mutants.operators import OPERATORS, Operator
from tests.mutants.source import Source, begin_of, end_of, read

KERNELS = ROOT / "kernels"
CUDA = Path("attention", "cuda")
COVERED = {
    "fa1.cuh": ("fa1",),
    "small.cuh": ("small",),
    "split_k.cuh": ("split_k",),
    "split_k.cu": ("split_k",),
    "partials.cuh": ("split_k",),
    "decode.cuh": ("decode",),
    "warp_specialized.cuh": ("warp_specialized@sm_90", "warp_specialized@sm_90 even"),
    "groups.cuh": ("warp_specialized@sm_90", "warp_specialized@sm_90 even"),
    "shape.cuh": ("tensor_core", "tensor_core@sm_90", "split_k"),
    "tensor_core.cuh": ("tensor_core", "tensor_core@sm_90", "split_k"),
    "warp.cuh": ("tensor_core", "tensor_core@sm_90", "small", "split_k"),
    "tile.cuh": ("tensor_core", "tensor_core@sm_90", "small", "split_k"),
    "problem.cuh": ("fa1", "tensor_core", "small", "split_k", "decode"),
}
"""Files that are mutated, and the variants that include them: tried in this order until one shows the mistake.

Not costs.cuh and auto.cuh: they choose among kernels that give the same results, so a mistake costs time alone.
"""

Sources = Mapping[str, Source]


@dataclass(frozen=True)
class Mutant:
    """A copy of the sources with one mistake in it."""

    key: str
    """Its identity: file, function, operator and the expression that is changed; no line number."""
    operator: str
    source: Source
    edits: tuple[tuple[int, int, str], ...]
    share: float = 1.0

    @property
    def file(self) -> str:
        """The file's name."""
        return self.source.name

    @property
    def line(self) -> int:
        """The line of the first edit."""
        return self.source.line(self.edits[0][0])

    @property
    def kept(self) -> bool:
        """Whether the thinning rule keeps it: drawn by its identity, so that other mutants do not matter."""
        drawn = int.from_bytes(hashlib.sha256(self.key.encode()).digest()[:4], "big") / 2**32
        return drawn < self.share

    @property
    def text(self) -> str:
        """The file with the mistake."""
        text = self.source.text
        for begin, end, instead in sorted(self.edits, reverse=True):
            text = text[:begin] + instead + text[end:]
        return text


def sources(kernels: Path = KERNELS) -> Sources:
    """The files that are mutated, as they are now."""
    return {name: read(kernels / CUDA / name) for name in COVERED}


def applications(files: Sources) -> list[Mutant]:
    """Every place where an operator applies."""
    return [mutant for source in files.values() for mutant in _of(source)]


def _of(source: Source) -> Iterator[Mutant]:
    seen: set[tuple[int, int, str]] = set()
    names: Counter[str] = Counter()
    for operator in OPERATORS:
        for edit in sorted(set(operator.edits(source)) - seen):
            seen.add(edit)
            name = _name(source, operator, *edit)
            names[name] += 1
            key = name if names[name] == 1 else f"{name} #{names[name]}"
            yield Mutant(key, operator.name, source, (edit,), operator.share)


def _name(source: Source, operator: Operator, begin: int, end: int, instead: str) -> str:
    code = source.code
    first, last = begin_of(code, begin), end_of(code, end)
    clause = " ".join(code[first:last].split())
    change = " ".join(code[begin:end].split())
    what = f"`{clause}`" if clause == change else f"`{change}` in `{clause}`"
    to = f"`{' '.join(instead.split())}`" if instead else "nothing"
    return f"{source.name} {source.scope(begin)}: {operator.name}: {what} -> {to}"


def history(files: Sources) -> list[Mutant]:
    """Mistakes that were made, or nearly: each must still apply, exactly once."""
    return [_named(name, files[file], changes) for name, (file, changes) in HISTORY.items()]


def _named(name: str, source: Source, changes: Sequence[tuple[str, str]]) -> Mutant:
    edits = []
    for old, new in changes:
        if source.text.count(old) != 1:
            raise ValueError(f"{name}: {source.name} has {source.text.count(old)} of {old!r}, expected one")
        begin = source.text.index(old)
        edits.append((begin, begin + len(old), new))
    return Mutant(f"history: {name}", "the history's own", source, tuple(edits))


def chosen(files: Sources, *, everything: bool = False) -> list[Mutant]:
    """The mutants of the study; `everything`: without thinning."""
    kept = [mutant for mutant in applications(files) if everything or mutant.kept]
    return [*kept, *history(files)]

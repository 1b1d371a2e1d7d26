"""How long a call may take before it hangs: the limit grows with its work, by what smaller calls took."""

from collections.abc import Iterator
from dataclasses import dataclass

from loop.model.target import Target, Workload
from loop.model.workloads import Takes, accepts, operations, single

SLOW_S = 5.0
"""A first call that takes longer has made something ready, and says nothing of those that follow."""
LONGEST_S = 900.0
"""No call is waited for longer."""
PATIENCE = 20.0
"""A call may take so many times what a smaller one says: caches that it no longer fits cost a factor of ten."""
LARGE_WORK = 1e6
"""Operations from which a call may take long: loops in Python need a second for them."""
STEP = 64.0
"""Where a call has more than so many times the work of all before it, smaller ones are tried first."""


@dataclass
class CallLimit:
    """The limit of one variant's calls, and what it has learned of their time."""

    target: Target
    variant: Takes
    least_s: float
    """A call that has not come back by then hangs, unless smaller ones say that it needs longer."""
    fixed_s: float | None = None
    """The limit of every call; None: as its work says."""
    work: float = 0.0
    """Work of the largest call that came back."""
    seconds: float = 0.0
    """What that one took."""

    def of(self, workload: Workload) -> float:
        """Seconds after which a call hangs."""
        if self.fixed_s is not None:
            return self.fixed_s
        work = operations(self.target, workload)
        scaled = self.seconds * work / self.work if self.work and work >= LARGE_WORK else 0.0
        return min(max(self.least_s, PATIENCE * scaled), LONGEST_S)

    def learn(self, workload: Workload, seconds: float) -> None:
        """Learn from a call that came back."""
        work = operations(self.target, workload)
        if work >= self.work:
            self.work, self.seconds = work, seconds

    def smaller(self, workload: Workload) -> Iterator[Workload]:
        """Workloads to learn from first, of a 4096th and a 64th of the work, where none was called."""
        work = operations(self.target, workload)
        if self.fixed_s is None and work >= LARGE_WORK:
            for share in (STEP * STEP, STEP):
                if self.work * STEP < work and self.work < work / share:
                    yield shrunk(self.target, self.variant, workload, work / share)


def shrunk(target: Target, variant: Takes, workload: Workload, work: float) -> Workload:
    """A workload of about that much work: its largest sizes halved, as far as the variant takes the result."""
    small, stuck = workload, set[str]()
    while operations(target, small) > work:
        free = {name: size for name, size in small.sizes.items() if size > 1 and name not in stuck}
        if not free:
            break
        name = max(free, key=lambda name: free[name])
        attributes = {name: value for name, value in small.attributes.items() if value is not None}
        entry = {**small.sizes, name: free[name] // 2, **attributes, "values": small.values, "dtype": small.dtype}
        halved = single(target, entry, small.dtype)
        if accepts(variant, halved):
            small = halved
        else:
            stuck.add(name)
    return small

"""Does anybody else use the GPU while we measure on it? What was seen of others, in words. Pure."""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from loop.machine.nvml import User

BUSY_PERCENT = 5
"""Kernels of others that ran for a larger share of the time are worth a word; a desktop stays below."""
MUCH_BYTES = 2 * 2**30
"""So much memory that no process which can be seen holds is somebody's: drivers reserve a half of one GiB."""
REMEDY = "end it, or take another GPU: CUDA_VISIBLE_DEVICES names it"


@dataclass(frozen=True)
class Company:
    """Who else is on the GPU."""

    others: tuple[User, ...] = ()
    """Processes that are not ours."""
    loose_bytes: int = 0
    """Memory that is taken, by no process that can be seen."""
    busy_percent: int | None = None
    """Share of the time in which kernels ran while none of ours did; None where nobody tells."""


def strangers(users: Sequence[User], own: Set[int], here: Set[int]) -> tuple[User, ...]:
    """The users that are not our own. `here`: the processes of this system, or of this container.

    What is not here has its number from outside a container, and may be one of ours by another name: as many as we
    have processes that were not seen are taken for ours, the smallest first.
    """
    unseen = len(own - {user.pid for user in users})
    known = [user for user in users if user.pid in here - own]
    outside = sorted((user for user in users if user.pid not in here), key=lambda user: user.memory_bytes or 0)
    return (*known, *outside[unseen:])


def warning(gpu: str, company: Company) -> str:
    """That others disturb a measurement on this GPU; empty when nobody does, as far as can be seen."""
    texts, others = [], company.others
    if others:
        memory_bytes = sum(user.memory_bytes or 0 for user in others)
        known = all(user.memory_bytes is not None for user in others)
        much = f"{memory_bytes / 2**20:.0f} MiB" if known else "memory"
        if len(others) == 1:
            texts.append(f"another process (pid {others[0].pid}) holds {much} of it")
        else:
            texts.append(f"{len(others)} other processes hold {much} of it (pid {others[0].pid} first)")
    elif company.loose_bytes > MUCH_BYTES:
        texts.append(f"{company.loose_bytes / 2**20:.0f} MiB of it are taken, by nobody who can be seen from here")
    if company.busy_percent is not None and company.busy_percent > BUSY_PERCENT:
        texts.append(f"somebody computes on it, {company.busy_percent} % of the time before anything was timed")
    shared = f"{gpu} is not ours alone: {'; '.join(texts)}"
    return f"{shared}: numbers will be noisy; {REMEDY}" if texts else ""

"""Which cloud was found, kept while the machine is up: nobody is asked anew at each session."""

import time
from pathlib import Path

from loop.base.documents import sums
from loop.base.errors import LoopError
from loop.base.remarks import remark
from loop.cloud.clouds import CLOUDS, base_of
from loop.model.base import Model

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NONE_FOR_S = 3600.0
"""A server that was too busy to answer is asked again after this time."""


class Remembered(Model):
    """What was found, and on what it stands."""

    format: int = 1
    """Format number."""
    boot: str
    """The kernel's id of this boot."""
    servers: tuple[str, ...]
    """Where the metadata servers were asked."""
    cloud: str
    """The cloud; empty for none."""
    at: float
    """Seconds since 1970."""


def recall(path: Path | None) -> str | None:
    """The cloud that was found since this machine was started, `""` for none; None where nobody remembers."""
    if path is None:
        return None
    try:
        kept = sums.read_sealed(Remembered, path)
    except OSError:
        return None
    except LoopError as error:
        remark(f"{error.message}; the cloud is asked again")
        return None
    same = (kept.boot, kept.servers) == (_boot(), _servers()) and kept.cloud in ("", *CLOUDS)
    young = 0 <= time.time() - kept.at < NONE_FOR_S
    return kept.cloud if same and kept.boot and (kept.cloud or young) else None


def keep(path: Path | None, cloud: str) -> None:
    """Remember what was found; a folder that cannot be written is no reason to stop."""
    if path is None or not _boot():
        return
    found = Remembered(boot=_boot(), servers=_servers(), cloud=cloud, at=time.time())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sums.write_sealed(path, found)
    except (OSError, LoopError):
        return


def _boot() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _servers() -> tuple[str, ...]:
    return tuple(base_of(name) for name in CLOUDS)

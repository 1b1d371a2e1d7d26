"""What an earlier session found counts again, for a while, where nothing that it rests on has changed."""

import datetime
import functools
from pathlib import Path
from typing import Annotated

from pydantic import Field

from loop.base.documents import content_hash, hash_files
from loop.base.places import PACKAGE, include_folder
from loop.model.base import Model
from loop.model.output import Found, outputs_of
from loop.steps.context import Context

OWN = {".py", ".c", ".h"}
"""What our own sources are called."""
PASSING = {"name", "load"}
"""Facts of a machine on which no result rests."""


class Lasting(Model):
    """How long a result may count."""

    lasts_h: Annotated[float, Field(ge=0, le=24 * 30)] = 0
    """Hours in which what an earlier session found is taken over, where all that it rests on is the same: loop,
    the machine, and the target but for what a compiler reads. 0: it is always found anew."""


def rests_on(context: Context, action: str, *more: str) -> str:
    """Hash of all that the result of a step rests on, but for the seed of its inputs; empty outside a session.

    `more`: ids of the builds that are looked at, where it is about those.
    """
    task, bench = context.task, context.bench
    if not task.harness:
        return ""
    chosen = {
        "variant": task.variants,
        "emulated": task.emulated,
        "workloads": task.plan.workloads,
        "checks": task.plan.checks,
    }
    words = [f"{kind} {name}" for kind, names in chosen.items() for name in names]
    here = task.machine.model_dump_json(exclude=PASSING)
    return content_hash([action, _loop(), task.harness, here, bench.device, str(bench.threads), *words, *more])


def take_over(context: Context, kind: type[Found], ground: str, terms: Lasting) -> Found | None:
    """What the last session that looked found on the same ground, if that was good and within the time; else None.

    Raises LoopError where that session is damaged.
    """
    since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=terms.lasts_h)
    row = next((row for row in reversed(context.past.sessions) if ground and ground in row.lasting), None)
    if row is None or not row.lasting[ground] or row.started is None or row.started < since:
        return None
    outputs = [output for output in outputs_of(context.past.steps_of(row.id), kind) if output.rests_on == ground]
    if not outputs:
        return None
    message = f"{outputs[-1].message}; as in {row.id}, nothing that it rests on has changed"
    return outputs[-1].model_copy(update={"taken_from": row.id, "message": message})


@functools.cache
def _loop() -> str:
    """Hash of our own sources: another gate has other findings."""
    sources: list[Path] = [path for path in PACKAGE.rglob("*") if path.suffix in OWN]
    return content_hash([hash_files(sources, PACKAGE), hash_files(include_folder().glob("*.h"), include_folder())])

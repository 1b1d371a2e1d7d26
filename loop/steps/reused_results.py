"""Reuses a result of an earlier session for some hours, if everything it depends on is unchanged."""

import datetime
import functools
import json
from typing import Annotated

from pydantic import Field

from loop.base.documents import content_hash, hash_files
from loop.base.places import PACKAGE, include_folder
from loop.model.base import Model
from loop.model.output import OutputType, outputs_of
from loop.steps.context import Context

SOURCE_SUFFIXES = {".py", ".c", ".h"}  # Suffixes of loop's own source files.
IRRELEVANT_FIELDS = {"name", "load"}  # Fields of a machine on which no result depends.


class ResultLifetime(Model):
    """For how long a result of an earlier session is reused."""

    lasts_h: Annotated[float, Field(ge=0, le=24 * 30)] = 0
    """Hours for which an earlier session's result is reused if loop, the machine, and all files of the target
    that no compiler reads are unchanged. 0: never reused."""


def dependency_hash(context: Context, action: str, *build_ids: str) -> str:
    """Hash of all that a step's result depends on but the seed: loop, machine, target, variants, workloads and
    `build_ids`. Empty outside a session: nothing is reused then."""
    task, bench = context.task, context.bench
    if not task.uncompiled_hash:
        return ""
    machine_text = task.machine.model_dump_json(exclude=IRRELEVANT_FIELDS)
    names = json.dumps([task.variants, task.emulated, task.plan.workloads, task.plan.checks])
    texts = [action, _hash_of_loop(), task.uncompiled_hash, machine_text, bench.device, str(bench.threads), names]
    return content_hash([*texts, *build_ids])


def reuse_result(
    context: Context, output_class: type[OutputType], dependencies_hash: str, lifetime: ResultLifetime
) -> OutputType | None:
    """The result with this hash of the last earlier session that has one, as `output_class`; its message names
    that session. None without one, if it was not good, or if that session began more than `lasts_h` ago."""
    oldest_start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=lifetime.lasts_h)
    rows = [row for row in context.past.sessions if dependencies_hash in row.lasting]
    row = rows[-1] if dependencies_hash and rows else None
    if row is None or not row.lasting[dependencies_hash] or row.started is None or row.started < oldest_start:
        return None
    for output in reversed(outputs_of(context.past.read_steps(row.id), output_class)):
        if output.rests_on == dependencies_hash:
            message = f"{output.message}; taken from {row.id}: nothing that it depends on has changed"
            return output.model_copy(update={"taken_from": row.id, "message": message})
    return None


@functools.cache
def _hash_of_loop() -> str:
    """Hash of loop's own sources: another version of the gate may find something else."""
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in SOURCE_SUFFIXES]
    return content_hash([hash_files(sources, PACKAGE), hash_files(include_folder().glob("*.h"), include_folder())])

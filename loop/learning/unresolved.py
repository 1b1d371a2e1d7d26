"""Failed checks that no later session has resolved, and the sessions that the next one needs.

Variant, workload, layout, threads, seed and device identify a check. A failure stays unresolved until
the same check passes on changed sources. If the same sources pass, the variant is flaky, not right.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loop.base.errors import LoopError, remark_once
from loop.gate.kernel import find_known_good, hardware_key
from loop.model.dtypes import Device
from loop.model.index import Judgement, SessionRow
from loop.model.record import SessionHead
from loop.store import index
from loop.store.sessions import list_sessions

Sources = tuple[str, str]
"""Build id, and hash of the files that are not compiled: what a check was about."""


@dataclass(frozen=True)
class UnresolvedFailure:
    """A failed check of a variant that has not passed on changed sources since."""

    row: SessionRow
    """The last session in which it failed."""
    judgement: Judgement
    check: str
    passed_in: str = ""
    """A session in which the same sources passed this check, so it is flaky; empty if there is none."""


CheckKey = tuple[str, str, int, int, bool, Device]


def _check_key(judgement: Judgement, check: str, device: Device) -> CheckKey:
    """Identity of a check. A failure is resolved when a check with an equal key passes."""
    return judgement.variant, check, judgement.threads, judgement.seed, judgement.emulated, device


def unresolved_failures(
    rows: Sequence[SessionRow], files_hash: str, workloads_by_variant: Mapping[str, Collection[str]]
) -> tuple[UnresolvedFailure, ...]:
    """Unresolved failures of the variants, latest first. `rows`: sessions of one target, oldest first. A failure
    on files of `files_hash` (the current ones) stays, even if other files passed in between. A failure on a
    workload that is not in `workloads_by_variant` any more ends when a session finds changed sources right."""
    passes: dict[CheckKey, list[tuple[Sources, int]]] = {}  # With the number of the row.
    passes_without_failure: dict[str, list[tuple[Sources, int]]] = {}  # Of a variant in one session.
    last_failures: dict[tuple[CheckKey, Sources], tuple[int, Judgement, str]] = {}
    present_sources = set[tuple[str, Sources]]()
    for number, row in enumerate(rows):
        for judgement in () if row.recorded else row.judged:
            # `harness`: hash of the files that are not compiled; the build id stands for the others.
            variant, sources = judgement.variant, (judgement.build, row.harness or row.ground)
            if row.ground == files_hash:
                present_sources.add((variant, sources))
            for check in judgement.right:
                passes.setdefault(_check_key(judgement, check, row.device), []).append((sources, number))
            if not judgement.wrong:
                passes_without_failure.setdefault(variant, []).append((sources, number))
            for check in judgement.wrong:
                last_failures[_check_key(judgement, check, row.device), sources] = number, judgement, check
    unresolved = []
    latest_first = sorted(last_failures.items(), key=lambda failure: -failure[1][0])
    for (key, sources), (number, judgement, check) in latest_first:
        if (variant := judgement.variant) not in workloads_by_variant:
            continue
        passes_of_check = list(passes.get(key, ()))
        # A check's name begins with its workload, except `sanitizers`.
        if check != "sanitizers" and check.partition(", ")[0] not in workloads_by_variant[variant]:
            passes_of_check += passes_without_failure.get(variant, ())  # Nothing repeats a removed workload.
        is_resolved = any(later > number and other != sources for other, later in passes_of_check)
        if not is_resolved or (variant, sources) in present_sources:
            flaky_in = [rows[passed].id for other, passed in passes.get(key, ()) if other == sources]
            unresolved.append(UnresolvedFailure(rows[number], judgement, check, flaky_in[-1] if flaky_in else ""))
    return tuple(unresolved)


def sessions_needed(root: Path) -> set[str]:
    """Ids of the earlier sessions that the next session reads, so that they are sent along to a host: the last
    session of each target and device, those of their known-good builds, and those with an unresolved failure."""
    last_head_by_key: dict[str, SessionHead] = {}
    for folder in list_sessions(root):
        try:
            head = folder.head()
            last_head_by_key[repr(hardware_key(head))] = head
        except LoopError as error:
            remark_once(f"left out: {error.message}")
    session_ids = set[str]()
    for head in last_head_by_key.values():
        session_ids |= {head.id, *(good.session for good in find_known_good(root, head).values())}
    for target in {head.target for head in last_head_by_key.values()}:
        rows = index.rows(root, target=target)
        judgements = [judgement for row in rows for judgement in row.judged]
        workloads = {check.partition(", ")[0] for judgement in judgements for check in judgement.wrong}
        # The target is not read here: no workload counts as removed, and no files as the current ones.
        workloads_by_variant = {judgement.variant: workloads for judgement in judgements}
        failures = unresolved_failures(rows, "", workloads_by_variant)
        session_ids |= {failure.row.id for failure in failures}
    return session_ids

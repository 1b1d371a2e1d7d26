"""Which kernels a call launches, and why: a variant that chooses among several says so in a dry run."""

from collections.abc import Mapping

from loop.model.base import Model
from loop.model.resources import WorkloadLaunches, short_name
from loop.profile.inspection import Findings, ask_host_code, cuda_variants
from loop.profile.model import ChooseOutput
from loop.steps.context import Context, Result, Working


class ChooseTerms(Model):
    """Whose values decide."""

    device: str = "sm_89"
    """A key of the manifest's `devices`, which need not be at hand."""


def choose(context: Context, arguments: ChooseTerms) -> Working[ChooseOutput]:
    """Ask the host code of each variant, built for the emulator, what it launches on the plan's workloads."""
    found = Findings(arguments.device, None)
    yield from ask_host_code(context, cuda_variants(context), found, built=False, timed=True)
    calls = {name: tuple(_named(one, found.names) for one in told) for name, told in found.told.items()}
    count = sum(len(told) for told in calls.values())
    missing = [*found.problems, *found.missing]
    message = (
        f"{count} calls on {arguments.device}"
        if calls
        else "; ".join(missing) or "no variant that can be emulated"
    )
    return Result(
        ChooseOutput(
            ok=bool(calls) and not found.problems,
            message=message,
            hint=found.hints[0] if found.hints else None,
            not_exercised=tuple(found.missing),
            device=arguments.device,
            calls=calls,
        )
    )


def _named(told: WorkloadLaunches, names: Mapping[str, str]) -> WorkloadLaunches:
    launches = [
        one.model_copy(update={"kernel": short_name(names.get(one.kernel, one.kernel))}) for one in told.launches
    ]
    return told.model_copy(update={"launches": tuple(launches)})

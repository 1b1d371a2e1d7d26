"""Steps of golden sessions, made by hand. They hold no facts of the machine that runs the test."""

from collections.abc import Sequence
from typing import Any

from loop.model.measurement import Build, Measurement
from loop.model.output import MeasureOutput
from loop.model.profile import FACTS, Profile
from loop.model.record import Finished
from loop.profile.actions import ProfileOutput
from tests.makers import (
    make_build,
    make_built,
    make_check,
    make_finished,
    make_measured,
    make_measurement,
    make_verify,
)

WORKLOADS = tuple(f"B1 H1 S{size} D64{mask} float32" for size in (32, 64, 128) for mask in (" causal", ""))
HALVES = tuple(name.replace("float32", "float16") for name in WORKLOADS)


def torch_step(**fields: Any) -> Finished:
    texts = {"message": "torch 2.9.0+cpu, CPU build", "seconds": 1.3, "budget_s": 15.0}
    base = {"pattern": "environment-validation", "action": "environment.torch", **texts}
    return make_finished("torch", **{**base, **fields})


def build_step(*builds: Build, **fields: Any) -> Finished:
    output = make_built(*(builds or (make_build(),)))
    return make_finished("build", run=2, output=output, **{"seconds": 4.4, "message": "cpu compiled", **fields})


def verify_step(names: Sequence[str] = WORKLOADS, variant: str = "cpu", **fields: Any) -> Finished:
    output = make_verify(*(make_check(name) for name in names), variant=variant)
    texts = {"seconds": 5.4, "message": f"{variant} right in {len(names)} checks"}
    return make_finished("verify", run=2, output=output, **{**texts, **fields})


def measured(
    names: Sequence[str], ratios: Sequence[float], variant: str = "cpu", **fields: Any
) -> list[Measurement]:
    """One measurement a workload."""
    pairs = zip(names, ratios, strict=True)
    return [make_measurement(name, ratio, width=0.04 * ratio, variant=variant, **fields) for name, ratio in pairs]


def measure_step(*all_measured: Measurement, **fields: Any) -> Finished:
    output: MeasureOutput = make_measured(*all_measured, **fields.pop("found", {}))
    texts = {"seconds": 17.0, "message": "measured", "artifacts": ("samples/2-measure-1-measure.json",)}
    return make_finished("measure", run=2, output=output, **{**texts, **fields})


def profile_step(*profiles: Profile) -> Finished:
    """A finished `profile` step: places of variants on the roofline."""
    output = ProfileOutput(ok=True, message="profiled", profiles=profiles)
    return make_finished("profile", run=2, output=output, seconds=0.9, message="cpu: latency")


def profile(variant: str = "cpu", workload: str = WORKLOADS[0], **facts: Any) -> Profile:
    """A profile with a known roof."""
    base: dict[str, Any] = {"device": "cpu", "ratio": 1.4, "time_us": 20.0, "flops": 1048576, "bytes": 32768}
    shares = {"intensity": 32.0, "flops_share": 0.42, "bandwidth_share": 0.066, "roof": "compute"}
    leaf = {"severity": "high", "tool": "counters", "bottleneck": "latency", "when": "flops_share < 0.5"}
    return Profile(
        variant=variant,
        workload=workload,
        facts={**dict.fromkeys(FACTS), **base, **shares, **facts},
        fix="more independent work",
        gain="up to 2 times",
        sources={"flops_share": "of 125 GFLOP/s, measured here on 8 threads"},
        unknown={"ipc": "perf is not installed"},
        **leaf,
    )

"""Makers of models with sensible values: a test names only the fields that matter to it."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loop.base.places import shipped
from loop.builds.resources import KernelResources
from loop.gate.model import BuildOutput
from loop.model.index import SessionRow
from loop.model.measurement import (
    Build,
    Check,
    Measurement,
    Mismatch,
    NoSpeedVerdict,
    SpeedVerdict,
    VariantChecks,
    Verdict,
)
from loop.model.money import Bill, RateCard
from loop.model.output import MeasureOutput, VerifyOutput
from loop.model.plan import Pattern, Plan, PlannedPattern, ResolvedPlan
from loop.model.profile import DeviceFacts
from loop.model.record import Finished, Machine, Revision, SessionHead, SessionRecord
from loop.model.target import Workload
from loop.profile.launch_limits import CompiledLibrary, KernelLaunch, Placement
from loop.session.page import View, render_session

NOON = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)


def make_workload(name: str = "B1 H1 S64 D64 float32", **fields: Any) -> Workload:
    """A small attention workload."""
    sizes = {"B": 1, "H": 1, "Sq": 64, "Sk": 64, "D": 64}
    return Workload.model_validate({"name": name, "sizes": sizes, "dtype": "float32", **fields})


def make_pattern(
    name: str = "baseline-first", steps: Sequence[str] = ("verify", "measure"), **fields: Any
) -> Pattern:
    """A pattern whose steps only have ids."""
    described = [{"id": s, "title": f"Do {s}", "action": f"kernel.{s}", "budget_s": 10.0} for s in steps]
    base = {"format": 1, "name": name, "number": 1, "title": name.replace("-", " ").capitalize()}
    words = {"problem": "p", "use_when": ("always",), "estimate": {"minutes": 0.5}, "steps": described}
    return Pattern.model_validate({**base, **words, **fields})


def make_plan(*patterns: Pattern) -> ResolvedPlan:
    """A resolved plan of these patterns; with none given, of baseline-first."""
    chosen = patterns or (make_pattern(),)
    plan = Plan.model_validate(
        {
            "format": 1,
            "name": "baseline",
            "title": "Build, verify, and measure against the library",
            "patterns": tuple(pattern.name for pattern in chosen),
            "workloads": ("history",),
            "budget": {"minutes": 1.0},
        }
    )
    planned = [PlannedPattern(pattern=pattern, planned=True, seconds=30.0, evidence="prior") for pattern in chosen]
    return ResolvedPlan(plan=plan, patterns=tuple(planned))


def make_report(
    record: SessionRecord, finished: Sequence[Finished], templates: Path | None = None, **fields: Any
) -> str:
    """The report of a session as Markdown."""
    return render_session(templates or shipped("templates"), View(record, finished, **fields))[0]


def make_machine(**fields: Any) -> Machine:
    """A laptop without a GPU."""
    base = {"name": "bench", "system": "Linux 6.8", "processor": "Some CPU", "cores": 8, "memory_gb": 32.0}
    tools = {"python": "3.11.9", "compiler": "g++ 13.2", "nvcc": None}
    return Machine.model_validate({**base, **tools, **fields})


def make_session_head(**fields: Any) -> SessionHead:
    """The head of a session of the bundled target on the CPU."""
    base: dict[str, Any] = {
        "id": "2026-11-21-120000-baseline",
        "started": NOON,
        "plan": make_plan(),
        "target": "attention",
        "target_folder": "bundled",
        "baseline": "torch_sdpa",
        "variants": ("cpu",),
        "device": "cpu",
        "threads": 8,
        "seed": 7,
        "revision": Revision(commit="0123456789abcdef", branch="main"),
        "machine": make_machine(),
        "loop_version": "0.2.0",
    }
    return SessionHead.model_validate({**base, **fields})


def make_finished(step: str = "verify", **fields: Any) -> Finished:
    """A step of baseline-first that passed within its budget; `output` may be a model."""
    base = {"run": 1, "pattern": "baseline-first", "step": step, "action": f"kernel.{step}"}
    ended = {"status": "passed", "seconds": 2.0, "budget_s": 10.0, "message": f"{step} is fine"}
    output = fields.pop("output", {})
    stored = output if isinstance(output, dict) else output.model_dump(mode="json")
    return Finished.model_validate({**base, **ended, "output": stored, **fields})


def make_check(workload: str = "B1 H1 S64 D64 float32", *, right: bool = True, **fields: Any) -> Check:
    """A check that is right, or wrong in three elements."""
    base: dict[str, Any] = {"workload": make_workload(workload), "max_error": 1e-6, "plain_max_error": 2e-6}
    if right:
        return Check.model_validate({**base, "status": "right", "message": "largest error 1.0e-06", **fields})
    counts = {"status": "wrong", "message": f"3 of 4096 elements wrong on {workload}", "wrong": 3, "total": 4096}
    places = {"first": make_mismatch(Sq=32), "worst": make_mismatch(Sq=63)}
    return Check.model_validate({**base, **counts, **places, **fields})


def make_mismatch(**index: int) -> Mismatch:
    """An element that came out as NaN."""
    return Mismatch(index={"B": 0, "H": 0, **index, "D": 1}, expected=0.25, got=None, allowed=1e-5)


def make_verify(*checks: Check, variant: str = "cpu") -> VerifyOutput:
    """The output of verifying one variant; without checks it is right on one workload."""
    side = VariantChecks(variant=variant, build_id="abcdef0123456789", checks=checks or (make_check(),))
    control = VariantChecks(variant="baseline", build_id=None, checks=(make_check(),))
    bad = [check for check in side.checks if check.status != "right"]
    verdicts = tuple(make_no_speed(check.workload.name, variant=variant, reason=check.message) for check in bad)
    return VerifyOutput(
        ok=not bad, message="verified", variants=(side,), control=control, verdicts=verdicts, right=(variant,)
    )


def make_measurement(
    workload: str = "B1 H1 S64 D64 float32", ratio: float = 1.5, *, width: float = 0.05, **fields: Any
) -> Measurement:
    """A measurement whose interval reaches `width` to either side."""
    base = {"variant": "cpu", "workload": make_workload(workload), "against": "baseline", "rounds": 5}
    times = {"reference_us": 30.0 * ratio, "candidate_us": 30.0, "interval": (ratio - width, ratio + width)}
    return Measurement.model_validate({**base, "ratio": ratio, **times, **fields})


def make_measured(*measurements: Measurement, **fields: Any) -> MeasureOutput:
    """The output of measuring, each measurement with the verdict that its interval gives."""
    verdicts = tuple(make_verdict(row) for row in measurements)
    base = {"ok": True, "message": "measured", "rounds": 5, "threads": 8}
    return MeasureOutput.model_validate({**base, "measurements": measurements, "verdicts": verdicts, **fields})


def make_verdict(row: Measurement) -> SpeedVerdict:
    """Faster or slower if the interval excludes 1, else inconclusive."""
    low, high = row.interval
    word = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
    return make_speed(row.workload.name, word, row.ratio, variant=row.variant, interval=row.interval)


def make_speed(workload: str = "w", word: str = "faster", ratio: float = 1.5, **fields: Any) -> SpeedVerdict:
    """A verdict on speed against the baseline."""
    base = {"variant": "cpu", "against": "baseline", "interval": (ratio - 0.05, ratio + 0.05), "reason": "so"}
    return SpeedVerdict.model_validate({**base, "workload": workload, "verdict": word, "ratio": ratio, **fields})


def make_no_speed(workload: str = "w", word: str = "incorrect", **fields: Any) -> NoSpeedVerdict:
    """A verdict on a variant that has no speed."""
    base = {"variant": "cpu", "against": "baseline", "reason": f"wrong on {workload}"}
    return NoSpeedVerdict.model_validate({**base, "workload": workload, "verdict": word, **fields})


def make_build(**fields: Any) -> Build:
    """A build that was just compiled."""
    base = {"variant": "cpu", "build_id": "abcdef0123456789", "library": "cpu.so", "seconds": 4.2}
    return Build.model_validate({**base, "cached": False, "compiler": "g++ 13.2", **fields})


def make_built(*builds: Build) -> BuildOutput:
    return BuildOutput(ok=True, message="built", builds=builds)


def make_card(**fields: Any) -> RateCard:
    """An L4 of GCP at 0.72 dollars an hour, an engineer who attends at 36: a cent a second."""
    dated = {"source": "a test", "as_of": datetime.date(2026, 11, 1)}
    rates = (
        {"name": "l4", "resource": "gpu", "usd_per_hour": 0.72, "cloud": "gcp", **dated},
        {"name": "engineer", "resource": "engineer", "usd_per_hour": 36.0, **dated},
    )
    return RateCard.model_validate({"format": 1, "rates": rates, "gpu": "l4", "waiting": "engineer", **fields})


def make_bill(**fields: Any) -> Bill:
    """An empty bill."""
    base = {"charges": (), "unmeasured": (), "savings": (), "usd": 0.0}
    return Bill.model_validate({**base, **fields})


def make_record(head: SessionHead | None = None, verdicts: Sequence[Verdict] = (), **fields: Any) -> SessionRecord:
    """A session that passed."""
    base: dict[str, Any] = {
        "head": head or make_session_head(),
        "status": "passed",
        "reason": "all 2 steps that ran passed",
        "seconds": 12.0,
        "own_seconds": 0.3,
        "verdicts": tuple(verdicts),
        "bill": make_bill(),
        "grade": "A",
        "grade_reason": "all 2 steps passed within their budgets",
        "learnings": (),
        "not_exercised": (),
        "proposal": "Go on.\nloop run session baseline",
    }
    return SessionRecord.model_validate({**base, **fields})


def make_device(name: str = "NVIDIA H100 80GB HBM3", **fields: Any) -> DeviceFacts:
    """A GPU as its driver tells it."""
    base = {"sms": 132, "shared_per_sm": 233472, "shared_per_block": 232448, "shared_static": 49152}
    base |= {"registers_per_sm": 65536, "threads_per_sm": 2048, "blocks_per_sm": 32, "l2_bytes": 50 << 20}
    return DeviceFacts.model_validate(
        {"name": name, **base, "bytes_per_s": 3.352e12, "clock_hz": 1.98e9, **fields}
    )


def make_kernel(name: str = "void tiny::rows<float, 128>(float const*)", **fields: Any) -> KernelResources:
    """A kernel with few registers and no spills."""
    base = {"symbol": f"_Z{name}", "name": name, "architecture": "sm_89", "registers": 32}
    return KernelResources.model_validate({**base, **fields})


def make_library(*kernels: KernelResources, variants: Sequence[str] = ("v",)) -> CompiledLibrary:
    return CompiledLibrary(variants=tuple(variants), kernels=kernels)


def make_launch(kernel: str = "_Zk", blocks: int = 58, **fields: Any) -> KernelLaunch:
    """A launch of blocks of 128 threads."""
    base = {"kernel": kernel, "grid": (blocks, 1, 1), "block": (128, 1, 1), "shared": 0}
    return KernelLaunch.model_validate({**base, **fields})


def make_placement(kernel: KernelResources, **fields: Any) -> Placement:
    """A launch of which four blocks fit on a multiprocessor."""
    base = {
        "variant": "v",
        "kernel": kernel.short_name,
        "symbol": kernel.symbol,
        "threads": 128,
        "shared_bytes": 1024,
    }
    limits = {"resident": 4, "limited_by": "registers", "workload": "w", "timed": True}
    return Placement.model_validate({**base, "registers": kernel.registers, **limits, **fields})


def make_row(number: int = 0, **fields: Any) -> SessionRow:
    """The row of a passed session of target `t`, begun `number` hours after noon."""
    base = {"id": f"s{number}", "started": NOON + datetime.timedelta(hours=number), "target": "t"}
    ended = {"plan": "p", "device": "cpu", "status": "passed", "environment": {"processor": "x"}}
    return SessionRow.model_validate({**base, **ended, **fields})

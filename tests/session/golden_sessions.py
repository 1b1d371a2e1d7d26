"""Sessions of every kind, made by hand, for golden reports. They hold no facts of this machine."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loop.model.bisect import BisectAnswer, BisectOutput, Candidate, Probe
from loop.model.measurement import SideSensors, Verdict
from loop.model.money import Bill, Charge, Saving, Unmeasured
from loop.model.plan import Pattern, PlannedPattern, Predicted, ResolvedPlan
from loop.model.record import Closed, Event, Finished, Line, Opened, SessionHead, SessionRecord, Started
from loop.timing.against_known_good import CompareOutput
from tests.makers import (
    NOON,
    make_bill,
    make_build,
    make_check,
    make_finished,
    make_machine,
    make_measurement,
    make_no_speed,
    make_pattern,
    make_plan,
    make_record,
    make_session_head,
    make_speed,
    make_verify,
)
from tests.session.golden_steps import (
    HALVES,
    WORKLOADS,
    build_step,
    measure_step,
    measured,
    profile,
    profile_step,
    torch_step,
    verify_step,
)

PATCH = """diff --git a/cpu/attention.h b/cpu/attention.h
--- a/cpu/attention.h
+++ b/cpu/attention.h
@@ -12,3 +12,3 @@
 for (int row = 0; row < rows; ++row) {
-    const float scale = hoisted;
+    const float scale = 1.0f / std::sqrt(width);
 }
"""


@dataclass(frozen=True)
class Session:
    """The input of a report."""

    record: SessionRecord
    finished: tuple[Finished, ...]
    lines: tuple[Line, ...]


def environment() -> Pattern:
    """The first pattern of every session."""
    return make_pattern("environment-validation", ("torch",), number=9)


def baseline(**fields: Any) -> Pattern:
    """Verify, measure, compare; a failure is answered."""
    answers = (
        {"when": "failed and verify.wrong != []", "pattern": "defensive-debugging"},
        {"when": "failed and session.regressed", "pattern": "git-bisect"},
    )
    return make_pattern("baseline-first", ("build", "verify", "measure", "compare"), next=answers, **fields)


def plan(*listed: Pattern, answers: Sequence[Pattern] = ()) -> ResolvedPlan:
    """A plan that lists some patterns; `answers` may follow them."""
    resolved = make_plan(*listed)
    planned = [PlannedPattern(pattern=item, planned=False, seconds=9.0, evidence="prior") for item in answers]
    return resolved.model_copy(update={"patterns": (*resolved.patterns, *planned)})


def head(resolved: ResolvedPlan | None = None, **fields: Any) -> SessionHead:
    """A head with a prediction."""
    expected = Predicted(seconds=30.0, low_s=20.0, high_s=45.0, usd=0.3, low_usd=0.2, high_usd=0.45)
    base = {"plan": resolved or plan(environment(), baseline()), "predicted": expected}
    return make_session_head(**{**base, **fields})


def journal(finished: Sequence[Finished], *, resumed_after: int | None = None) -> tuple[Line, ...]:
    """Journal lines: a tenth of a second between steps, an hour before a resume."""
    at, events = NOON, []
    events.append((at, Opened(pid=1)))
    for place, step in enumerate(finished):
        if place == resumed_after:
            at += datetime.timedelta(hours=1)
            events.append((at, Opened(resumed=True, pid=2)))
        at += datetime.timedelta(seconds=0.1)
        key = step.model_dump(include={"run", "pattern", "step", "attempt", "budget_s"})
        begun: Event = Started(title=f"Do {step.step}", index=1, of=4, **key)
        events.append((at, begun))
        at += datetime.timedelta(seconds=step.seconds)
        events.append((at, step))
    events.append((at, Closed(status="passed")))
    return tuple(Line(seq=number, at=time, event=event) for number, (time, event) in enumerate(events, start=1))


def paid(**fields: Any) -> Bill:
    """A bill with a charge, a saving, a prior and an unmeasured resource."""
    source = "cpu from the cache; compiling took 6.0 s then"
    base: dict[str, Any] = {
        "charges": (Charge(resource="engineer", rate="engineer", seconds=30.0, usd=0.42, basis="stated"),),
        "unmeasured": (Unmeasured(resource="ai", reason="loop started no agent"),),
        "savings": (Saving(pattern="single-compilation-unit", source=source, minutes=0.1, usd=0.084),),
        "usd": 0.42,
        "saved_usd": 0.084,
        "roi": -0.8,
    }
    return make_bill(**{**base, **fields})


def verdicts_of(finished: Sequence[Finished]) -> tuple[Verdict, ...]:
    """Verdicts from the outputs of the steps."""
    verdicts: list[Verdict] = []
    for step in finished:
        for raw in step.output.get("verdicts", ()):
            make = make_no_speed if raw["ratio"] is None else make_speed
            words = {name: value for name, value in raw.items() if name not in ("verdict", "workload")}
            verdicts.append(make(raw["workload"], raw["verdict"], **words))
    return tuple(verdicts)


def session(finished: Sequence[Finished], own_head: SessionHead | None = None, **fields: Any) -> Session:
    resumed_after = fields.pop("resumed_after", None)
    seconds = sum(step.seconds for step in finished)
    base = {"verdicts": verdicts_of(finished), "bill": paid(), "seconds": seconds + 0.3}
    record = make_record(own_head or head(), **{**base, **fields})
    return Session(record, tuple(finished), journal(finished, resumed_after=resumed_after))


RATIOS = (2.4, 2.2, 1.5, 1.31, 0.99, 0.72)


def passed() -> Session:
    """A CPU variant, faster on most."""
    timed = measure_step(*measured(WORKLOADS, RATIOS), found=both_ways())
    steps = [torch_step(), build_step(), verify_step(), timed]
    compared = make_finished("compare", run=2, seconds=11.0, message="cpu against itself: same on 6 of 6")
    learned = ("cpu does best on B1 H1 S32 D64 causal float32.",)
    return session([*steps, compared, profile_step(profile())], learnings=learned)


def both_ways() -> dict[str, Any]:
    """How sides were called, and one workload on which the way of calling tells."""
    return {
        "called": {"baseline": "Python, allocates its result", "cpu": "C, writes into a given output"},
        "empty_us": {"C": 0.31, "Python": 0.07},
    }


def incorrect() -> Session:
    """One workload is wrong; debugging answers."""
    parts = [{"first": 32 * n, "last": 32 * n + 31, "count": n * 3, "largest": 0.01 * 10**n} for n in range(4)]
    wrong = make_check(
        WORKLOADS[3], right=False, map={"H": [{"first": 0, "last": 0, "count": 18, "largest": None}], "Sq": parts}
    )
    output = make_verify(make_check(WORKLOADS[0]), wrong)
    debugging = make_pattern("defensive-debugging", ("components",))
    steps = [
        torch_step(),
        build_step(),
        make_finished(
            "verify", run=2, status="failed", output=output, message="cpu is incorrect", hint="look there"
        ),
        make_finished("components", run=3, pattern="defensive-debugging", action="debug.components", seconds=3.0),
    ]
    resolved = plan(environment(), baseline(), answers=[debugging])
    ending = {"status": "failed", "reason": "cpu is incorrect", "grade": "D", "grade_reason": "a gate failed"}
    return session(steps, head(resolved), **ending)


def _regressed(answer: BisectAnswer) -> Session:
    slower = make_measurement(WORKLOADS[0], 0.8, against="known_good", rounds=8)
    verdict = make_speed(
        WORKLOADS[0], "slower", 0.8, against="known_good", reason="evidence 4.1e+06", e_value=4.1e6
    )
    compared = CompareOutput(
        ok=False, message="cpu regressed", measurements=(slower,), verdicts=(verdict,), rounds=8
    )
    searched = BisectOutput(ok=True, message="found", variant="cpu", metric="latency", answer=answer)
    steps = [
        torch_step(),
        build_step(),
        verify_step(),
        measure_step(*measured(WORKLOADS, RATIOS)),
        make_finished("compare", run=2, status="failed", seconds=11.0, output=compared, message="cpu regressed"),
        make_finished(
            "search", run=3, pattern="git-bisect", action="bisect.search", output=searched, seconds=41.0
        ),
    ]
    resolved = plan(environment(), baseline(), answers=[make_pattern("git-bisect", ("search",), number=6)])
    why = "cpu is slower than its known good on 1 of 6 workloads"
    return session(steps, head(resolved), status="failed", reason=why, grade="D", grade_reason="a gate failed")


def _candidate(number: int, subject: str) -> Candidate:
    when = NOON - datetime.timedelta(days=5 - number)
    return Candidate(commit=f"{number}" * 40, subject=subject, author="A. Writer", when=when, tree=f"t{number}")


COMMITS = (_candidate(2, "Tidy"), _candidate(3, "Work the scale out for each row"), _candidate(4, "Rename"))


def _probe(number: int, *values: float, **fields: Any) -> Probe:
    base = {"commit": f"{number}" * 40, "against": "1" * 40, "why": "the middle", "status": "measured"}
    return Probe.model_validate({**base, "values": values, **fields})


def regression() -> Session:
    """The culprit is known."""
    return _regressed(
        BisectAnswer(
            outcome="culprit",
            why="slower than its parent in 8 fresh pairs",
            culprits=COMMITS[1:2],
            ratio=0.8,
            probes=(_probe(3, 0.21, 0.22), _probe(2, 0.004, -0.003)),
            builds=2,
            difference=PATCH,
        )
    )


def commit_range() -> Session:
    """Two commits that the search cannot separate, because one of them does not build."""
    return _regressed(
        BisectAnswer(
            outcome="range",
            why="one of them does not build",
            range=COMMITS[1:],
            probes=(_probe(4, 0.21, 0.22), _probe(3, status="broken", reason="does not compile")),
            builds=1,
            skipped={COMMITS[1].commit: "does not compile: attention.h:13: expected ';'"},
        )
    )


def paused() -> Session:
    """The session waits for a change."""
    change = make_pattern("change", ("brief",))
    hint = "edit, then: loop run session --resume 2026-11-21-120000-baseline"
    brief = make_finished(
        "brief", run=2, pattern="change", status="paused", message="one change is asked for", hint=hint
    )
    ending = {
        "status": "paused",
        "reason": "one change to cpu is asked for",
        "grade": "-",
        "grade_reason": "paused",
    }
    return session([torch_step(), brief], head(plan(environment(), change)), **ending)


def interrupted() -> Session:
    """Ctrl-C while measuring, after a first resume."""
    cut = make_finished("measure", run=2, status="aborted", message="interrupted by SIGINT", seconds=3.1)
    steps = [torch_step(), build_step(), verify_step(), cut]
    missing = ("step baseline-first/compare: the session ended before",)
    ending = {
        "status": "aborted",
        "reason": "interrupted by SIGINT",
        "grade": "F",
        "grade_reason": "it was aborted",
    }
    return session(steps, resumed_after=2, not_exercised=missing, **ending)


def over_budget() -> Session:
    """The next step would not have fitted."""
    missing = ("step baseline-first/measure: the budget did not reach so far",)
    reason = "the budget of 0.2 min is used up: baseline-first/measure takes about 17 s"
    ending = {"status": "aborted", "reason": reason, "grade": "F", "grade_reason": "it was aborted"}
    late = verify_step(seconds=12.5)
    return session([torch_step(), build_step(), late], not_exercised=missing, **ending)


def no_gpu() -> Session:
    """A session on a machine without a GPU: nothing can be timed."""
    names = HALVES[:2]
    checks = make_verify(*(make_check(name) for name in names), variant="split_k")
    emulated = checks.model_copy(update={"variants": (checks.variants[0].model_copy(update={"emulated": True}),)})
    steps = [
        torch_step(),
        make_finished(
            "emulate", run=2, action="kernel.emulate", output=emulated, seconds=9.0, message="split_k right"
        ),
        make_finished(
            "measure", run=2, status="skipped", message="skipped: needs a GPU", skipped_because="needs a GPU"
        ),
    ]
    gaps = ("speed of split_k: it runs on a GPU, here it was emulated", "anything on a GPU: this machine has none")
    ending = {"not_exercised": gaps, "grade": "C", "grade_reason": "speed was not judged"}
    pattern = make_pattern("baseline-first", ("emulate", "measure"))
    return session(steps, head(plan(environment(), pattern), variants=(), emulated=("split_k",)), **ending)


def gpu() -> Session:
    """Two variants on a GPU, with its sensors."""
    machine = make_machine(gpus=("NVIDIA L4",), driver="580.95", capability="8.9", nvcc="13.0")
    sensors = [
        SideSensors(side=side, segments=60, sm_clock_mhz=(1755, 1980, 2040))
        for side in ("baseline", "small", "split_k")
    ]
    small = measured(HALVES, (2.85, 2.7, 2.5, 2.36, 2.5, 2.4), "small", flops_per_s=1.8e12)
    split = measured(HALVES, (1.28, 1.22, 0.97, 0.78, 0.86, 1.06), "split_k", flops_per_s=6e11)
    checks = [make_verify(*(make_check(name) for name in HALVES), variant=name) for name in ("small", "split_k")]
    verified = checks[0].model_copy(update={"variants": (checks[0].variants[0], checks[1].variants[0])})
    facts = {"device": "cuda", "flops": 4194304, "bytes": 65536, "intensity": 64.0, "bandwidth_share": 0.0945}
    steps = [
        torch_step(message="torch 2.9.0+cu130, CUDA 13.0 build"),
        build_step(make_build(variant="small"), make_build(variant="split_k"), message="small, split_k compiled"),
        make_finished("verify", run=2, output=verified, seconds=7.2, message="small, split_k right"),
        measure_step(*small, *split, found={"sensors": tuple(sensors)}, seconds=24.0, budget_s=20.0),
        profile_step(
            profile("small", HALVES[3], **facts, ratio=2.36, time_us=2.31, flops_share=0.015),
            profile(
                "split_k",
                HALVES[3],
                **{**facts, "bandwidth_share": 0.031},
                ratio=0.78,
                time_us=7.03,
                flops_share=0.0049,
            ),
        ),
    ]
    charges = (Charge(resource="gpu", rate="gcp-l4-us-central1-on-demand", seconds=55.0, usd=0.011),)
    gpu_head = head(device="cuda", machine=machine, variants=("small", "split_k"))
    return session(
        steps, gpu_head, bill=paid(charges=charges, usd=0.011), grade="B", grade_reason="a step took longer"
    )


SESSIONS: dict[str, Callable[[], Session]] = {
    "passed": passed,
    "incorrect": incorrect,
    "regression": regression,
    "range": commit_range,
    "paused": paused,
    "interrupted": interrupted,
    "budget": over_budget,
    "no-gpu": no_gpu,
    "gpu": gpu,
}
"""By the name of their folder."""

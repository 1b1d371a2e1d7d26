"""Profiling a real build: facts, counters of ncu, the leaf of the tree, and unknown facts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loop.actions import ACTIONS
from loop.base.documents import load_yaml, parse
from loop.base.errors import DefinitionError
from loop.base.processes import run_to_end
from loop.library import definitions
from loop.library.definitions import find_project
from loop.model.plan import Plan
from loop.model.record import Finished
from loop.model.workloads import expand_sets
from loop.profile.actions import ProfileOutput, ProfileTerms
from loop.profile.launch_limits import ParallelismOutput
from loop.profile.profile import TIME_COUNTER, KernelRuns, PeakRates, read_log, run_ncu, vector_share
from loop.steps.context import Context, Task
from loop.workers.bench import Bench
from tests import tiny_cuda
from tests.fake_tools import FakeTool
from tests.makers import make_finished, make_machine, make_measured, make_measurement, make_verify
from tests.recorded import COUNTERS, STALLS, log_of
from tests.targets import compiled, external, importable, make_builds, make_sides, open_bench, write_target
from tests.targets import compiled as compiled_variant

TREE = """
with:
  severity: [{{when: ratio < 1, severity: high, tool: counters}}]
  tree: [{{when: {when}, bottleneck: it, fix: mend it, gain: much}}]
"""
L4 = {**tiny_cuda.L4, "flops_per_s": {"float32": 30.3e12}}
RULES: dict[str, Any] = {
    "severity": [{"when": "ratio < 1", "severity": "high", "tool": "counters"}],
    "tree": [
        {"when": "stall == 'x' and dram > 0.5", "bottleneck": "stalls", "fix": "wait less", "gain": "some"},
        {"when": "work_items > slots", "bottleneck": "too much", "fix": "do less", "gain": "all"},
    ],
}


@pytest.fixture
def bench(tmp_path: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench for the tiny target: a variant that says how it is cut up, a Python one, and one for a GPU."""
    variants = {
        "right": compiled("right", launch={"blocks": "N"}),
        "double": importable("double"),
        "gpu": compiled("right", device="cuda", launch={"blocks": "N", "threads": 128, "registers": 32}),
    }
    formulas = {
        "flops": "N * M",
        "bytes": "2 * itemsize * N * M",
        "devices": {"sm_89": L4},
        "dtypes": {"cpu": "float32", "cuda": "float32"},
    }
    target = write_target(tmp_path / "tiny", variants, **formulas)
    with open_bench(tmp_path / "tiny", target, build_cache) as opened:
        yield opened


def make_context(bench: Bench, *finished: Finished) -> Context:
    """A session with these finished steps."""
    fields = {"name": "p", "title": "P", "patterns": ("one",), "workloads": ("some",), "budget": {"minutes": 1.0}}
    plan = Plan.model_validate({"format": 1, **fields})
    task = Task(plan, ("right", "double"), make_machine(), 7, bench.folder)
    return Context(bench, task, finished=finished)


def only(context: Context, variant: str) -> Context:
    """The same session, of one variant."""
    return replace(context, task=replace(context.task, variants=(variant,)))


def timed_steps(bench: Bench, *ratios: float, variant: str = "right", **fields: Any) -> list[Finished]:
    """All workloads verified, and timed with these ratios."""
    build = make_builds(bench, variant)[variant]
    checked = make_verify(variant=variant)
    checked = checked.model_copy(
        update={"variants": (checked.variants[0].model_copy(update={"build_id": build.build_id}),)}
    )
    timed = zip(expand_sets(bench.target, ["some"], "float32"), ratios, strict=True)
    rows = [
        make_measurement(workload.name, ratio, variant=variant).model_copy(update={"workload": workload})
        for workload, ratio in timed
    ]
    return [make_finished(output=checked), make_finished("measure", output=make_measured(*rows, **fields))]


def run(action: str, context: Context, arguments: Any) -> Any:
    """The output of an action."""
    terms = ACTIONS[action].arguments.model_validate(arguments)
    return run_to_end(ACTIONS[action].run(context, terms)).output


def reaching(**rates: float) -> Any:
    """A machine that reaches that."""

    def measured(*_: Any) -> Any:
        yield from ()
        return PeakRates(**rates, source="measured here")

    return measured


def test_the_worst_workload_is_profiled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts come from formulas, measurements and the compiler; facts without a source are unknown."""
    monkeypatch.setattr("loop.profile.actions.measure_roof", reaching(flops_per_s=1e12, bytes_per_s=1e12))
    output: ProfileOutput = run("kernel.profile", make_context(bench, *timed_steps(bench, 0.5, 0.9, 1.2)), RULES)
    (profile,) = output.profiles
    facts = profile.facts
    assert ("right", "N2 M3 float32", 0.5) == (profile.variant, profile.workload, facts["ratio"])
    assert (6.0, 48.0, 0.125, 2, 1, 1) == tuple(
        facts[name] for name in ("flops", "bytes", "intensity", "work_items", "units", "slots")
    )
    assert isinstance(facts["flops_share"], float)
    assert 0 < facts["flops_share"] < 1
    assert "measured here" in profile.sources["flops_share"]
    assert isinstance(facts["vectorised"], int)
    assert facts["dram"] is None
    assert "there is no GPU" == profile.unknown["dram"]


def test_a_roof_that_is_exceeded_is_unknown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason has the share; the other roof's share stands, but which roof limits is unknown."""
    low = reaching(flops_per_s=0.1e6, bytes_per_s=1e9)
    monkeypatch.setattr("loop.profile.actions.measure_roof", low)
    output = run("kernel.profile", make_context(bench, *timed_steps(bench, 0.5, 0.9, 1.2)), RULES)
    (profile,) = output.profiles
    assert (None, None) == (profile.facts["flops_share"], profile.facts["roof"])
    assert isinstance(profile.facts["bandwidth_share"], float)
    reason = "it came to 2 of the arithmetic roof (measured here): that roof is wrong"
    assert profile.unknown["flops_share"].startswith(reason), profile.unknown


def on_cuda(bench: Bench) -> Context:
    """A session on a GPU with a measured variant; it runs on the processor, which the fake profiler ignores."""
    bench.device = "cuda"
    return only(make_context(bench, *timed_steps(bench, 0.5, 0.9, 1.2)), "right")


@pytest.mark.slow
def test_counters_of_the_gpu_are_facts(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of the longest kernel are facts, and the tree decides by them."""
    short, long = {**COUNTERS, TIME_COUNTER: ("ns", "880")}, {**COUNTERS, **STALLS}
    FakeTool("ncu", tmp_path / "tools", monkeypatch).says(
        log_of(long) + log_of({}, short, kernel="void fill(int)")
    )
    rules = {**RULES, "tree": [{**RULES["tree"][0], "when": "device == 'cuda' and dram < 0.4 and sm < 0.4"}]}
    output = run("kernel.profile", on_cuda(bench), rules)
    (profile,) = output.profiles
    assert pytest.approx((0.0027, 0.0023)) == (profile.facts["dram"], profile.facts["sm"])
    assert ("loads from device memory", "stalls") == (profile.facts["stall"], profile.bottleneck)
    assert (
        "ncu, of small_kernel<__half, SmallShape<64, 16, 4>, 0>, 80% of the time of 2 kernels"
        == (profile.sources["dram"])
    )
    assert profile.watched is not None
    assert (2, 4.4) == (profile.watched.launches, profile.watched.us)
    assert () == output.not_exercised


def test_the_leaf_says_what_to_do_and_what_was_not_decided(bench: Bench) -> None:
    """The leaf has a fix and a gain; rules that read unknown counters are listed as undecided."""
    output: ProfileOutput = run("kernel.profile", make_context(bench, *timed_steps(bench, 0.5, 0.9, 1.2)), RULES)
    (profile,) = output.profiles
    assert ("high", "too much", "do less", "all") == (
        *(profile.severity, profile.bottleneck, profile.fix, profile.gain),
    )
    assert "right high, too much on N2 M3 float32" == output.message
    assert ("right is held back by too much on N2 M3 float32, where it does worst: do less.",) == output.learned
    assert ["stalls"] == [text.partition(":")[0] for text in profile.undecided]


def test_every_launch_is_held_against_its_device(bench: Bench) -> None:
    """GPU variants count without a GPU, with a note; a variant without `launch` is not exercised."""
    output: ParallelismOutput = run("kernel.parallelism", make_context(bench), {})
    rows = {(filling.variant, filling.items): filling for filling in output.fillings}
    assert {("right", 2), ("right", 5), ("right", 3), ("gpu", 2), ("gpu", 5), ("gpu", 3)} == set(rows)
    gpu = rows["gpu", 2]
    assert ("NVIDIA L4", False, 58, 12) == (gpu.on, gpu.at_hand, gpu.units, gpu.resident)
    assert ("parallelism of double: the manifest declares no launch",) == output.not_exercised
    assert "gpu on NVIDIA L4, which is not at hand: not filled on 3 of 3 workloads" in output.message
    assert pytest.approx(2 / 58 / 12) == gpu.share


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("'dramm > 0.7'", "f.yaml:4:17: with.tree.0.when: expected a fact, as 'dram', got 'dramm'"),
        ("ratio >", "f.yaml:4:17: with.tree.0.when: expected an expression, got a mistake: invalid syntax"),
        ("f(ratio)", "got a call at column 1 of it"),
        ("true", "expected a valid string, got true"),
    ],
)
def test_a_mistake_in_the_tree_is_found_where_it_stands(when: str, expected: str) -> None:
    """The error comes before anything runs."""
    document = load_yaml(TREE.format(when=when), "f.yaml")
    with pytest.raises(DefinitionError) as caught:
        parse(ProfileTerms, document, ("with",))
    assert expected in str(caught.value)


def test_the_shipped_tree_ends_in_a_leaf_for_everything(tmp_path: Path) -> None:
    """The tree has a leaf for any unknown facts; each leaf states its possible gain."""
    read = definitions.patterns(find_project(None, tmp_path))["profiling-decision-tree"]
    terms = ProfileTerms.model_validate(read.value.steps[0].arguments)
    assert "true" == terms.tree[-1].when
    assert ["ratio < 0.5", "ratio < 1.0 and time_us < 10", "ratio < 1.0", "ratio < 1.5"] == [
        rule.when for rule in terms.severity
    ]


@pytest.fixture
def kinds(tmp_path: Path, build_cache: Path) -> Iterator[Bench]:
    """A bench with variants of each kind; the fake profiler ignores their device."""
    folder = tmp_path / "tiny"
    variants = {
        "right": compiled_variant("right"),
        "crashes": compiled_variant("crashes"),
        "python": importable("double"),
        "program": external("2"),
    }
    with open_bench(folder, write_target(folder, variants), build_cache) as opened:
        yield opened


def counted(kinds: Bench, name: str = "right", place: int = 1) -> KernelRuns:
    """Counters that ncu reports of a variant on five rows, or on two."""
    (side,) = make_sides(kinds, name)
    return run_to_end(run_ncu(kinds, side, expand_sets(kinds.target, ["some"], "float32")[place], 30.0))


def test_a_log_tells_of_each_launch_and_of_its_stalls() -> None:
    """Shares are from 0 to 1, times in us, names bare; the stall `selected` is left out."""
    (run,) = read_log(log_of({**COUNTERS, **STALLS}))
    assert ("small_kernel<__half, SmallShape<64, 16, 4>, 0>", 3.52, 105) == (run.kernel, run.us, run.registers)
    assert pytest.approx((0.0027, 0.0023, 0.0621)) == (run.dram, run.sm, run.warps_active)
    assert pytest.approx(1024 / 3340) == run.bank_conflicts
    (run,) = read_log(log_of(STALLS))
    assert pytest.approx(1.69 / 7.01) == run.stalls["loads from device memory"]
    assert {"selected"} & {*run.stalls} == set()
    assert pytest.approx(1 - 1 / 7.01) == sum(run.stalls.values())


@pytest.mark.slow
def test_a_lack_of_permission_comes_with_its_remedy(
    kinds: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy is given, whatever other errors the log has."""
    tool = FakeTool("ncu", tmp_path / "tools", monkeypatch)
    words = (
        "ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    )
    tool.says(f"==ERROR== {words}target device 0.\n==WARNING== No kernels were profiled.\n", 1)
    result = counted(kinds)
    assert result[0] == ()
    assert "NVreg_RestrictProfilingToAdminUsers=0" in result[1]
    assert "--cap-add=SYS_ADMIN" in result[1]


LISTING = """
\tvaddps\t(%rax), %zmm0, %zmm1
\tvfmadd231ps\t%zmm1, %zmm2, %zmm0
\tmulsd\t8(%rax), %xmm0
\tmovaps\t%xmm0, (%rax)
\tvaddss\t%xmm0, %xmm1, %xmm1
"""


def test_a_listing_tells_vectors_from_single_elements() -> None:
    """Two of four instructions are vectors; moves do not count."""
    assert 0.5 == vector_share(LISTING)
    assert vector_share("\tmovl\t%eax, %ebx\n") is None

"""Whether a replay found the same: each expectation against what came out."""

from dataclasses import replace

from loop.model.output import MeasureOutput, VerifyOutput
from loop.replay.comparing import ReplayComparison, ReplayResult, compare
from loop.replay.expectations import ExpectedKernel, JudgedLibrary, checks, expectations, place, speeds
from tests.makers import make_check, make_finished, make_machine, make_measured, make_measurement, make_verify

GCC = JudgedLibrary("cpu", "abcdef0123456789", "gcc 12", ("gcc", "a.c"))
KERNEL = ExpectedKernel(
    variant="cpu", architecture="sm_89", symbol="_Z1k", registers=64, spill_bytes=0, shared_bytes=0
)


def found(verified: VerifyOutput | None = None, measured: MeasureOutput | None = None) -> ReplayResult:
    """What a replay found: the same as the session, but for what is given."""
    return ReplayResult(
        machine=place(make_machine()),
        builds={"cpu": {GCC.build_id: "gcc 12"}},
        checks=checks([verified or make_verify()]),
        speeds=speeds([measured or make_measured(make_measurement())]),
        kernels={("cpu", "sm_89", "_Z1k"): KERNEL},
        same_code=lambda build_id: True,
        failures={"measure": "cpu is invalid"},
    )


def compared(now: ReplayResult) -> ReplayComparison:
    """The same session against what was found now."""
    finished = [
        make_finished("verify", output=make_verify()),
        make_finished("measure", output=make_measured(make_measurement())),
    ]
    return compare((*expectations(finished, make_machine(), [GCC]), KERNEL), now)


def test_what_comes_out_again_is_the_same() -> None:
    """Nothing differs, nothing is unknown, and what was compared is counted."""
    assert ReplayComparison(["1 check", "1 build", "1 speed", "1 kernel"]) == compared(found())


def test_a_wrong_output_differs() -> None:
    """By its status, with the recorded one."""
    wrong = make_verify(make_check(right=False, max_error=0.5))
    assert [
        "cpu is wrong on 1 of 1 that were right, largest error 0.5 on B1 H1 S64 D64 float32 "
        "(recorded: 1e-06, at most 2e-06)"
    ] == compared(found(wrong)).differs


def test_a_right_output_may_err_twice_as_much() -> None:
    """Threads may add in another order; more than that differs."""
    assert [] == compared(found(make_verify(make_check(max_error=1.9e-6)))).differs
    (line,) = compared(found(make_verify(make_check(max_error=2.1e-6)))).differs
    assert "less exact" in line


def test_a_check_that_was_not_made_differs() -> None:
    """Another seed is another check."""
    none = replace(found(), checks={})
    assert ["cpu is not checked on 1 of 1 that were right, B1 H1 S64 D64 float32"] == compared(none).differs


def test_another_ratio_differs_where_the_intervals_do_not_meet() -> None:
    """The recorded interval is 1.45 to 1.55, and 5 % wider for the comparison."""
    near = make_measured(make_measurement(ratio=1.65, width=0.03))
    far = make_measured(make_measurement(ratio=1.2, width=0.05))
    assert [] == compared(found(measured=near)).differs
    (line,) = compared(found(measured=far)).differs
    assert "is 1.2, 1.15 to 1.25 (recorded: 1.5, 1.45 to 1.55; within 1.38 to 1.63)" in line


def test_a_ratio_that_could_be_anything_cannot_be_told() -> None:
    """It agrees with every other."""
    noise = compared(found(measured=make_measured(make_measurement(interval=(0.5, 3.0)))))
    assert [] == noise.differs
    assert ["too noisy"] == [line.split(":")[0] for line in noise.unknown]


def test_a_missing_speed_cannot_be_told() -> None:
    """A right kernel without a speed is one that could not be timed here; the step says why."""
    assert ["1 of 1 speeds are missing: cpu is invalid"] == compared(replace(found(), speeds={})).unknown


def test_another_build_differs() -> None:
    """The same compiler on the same machine, and another id."""
    other = replace(found(), builds={"cpu": {"0000": "gcc 12"}})
    (line,) = compared(other).differs
    assert "build of cpu is 0000 (recorded: abcdef0123456789)" in line


def test_a_line_that_makes_other_code_differs() -> None:
    """What stands in the recipe is what is built, or it is said."""
    other = compared(replace(found(), same_code=lambda build_id: False))
    assert ["the recipe's line that compiles cpu makes other code than loop does"] == other.differs


def test_another_compiler_cannot_be_told() -> None:
    """Neither builds nor speeds nor registers are compared; what is wrong still differs."""
    other = replace(found(), builds={"cpu": {"0000": "gcc 13"}})
    assert ["1 check"] == compared(other).compared
    assert ["cpu was compiled by gcc 12, here by gcc 13"] == compared(other).unknown
    assert compared(replace(other, checks={})).differs


def test_another_build_on_another_machine_cannot_be_told() -> None:
    """Its flags may name the processor; only builds are enough for an answer."""
    other = replace(found(), machine=place(make_machine(cores=1)), builds={"cpu": {"0000": "gcc 12"}})
    only = compare([place(make_machine()), GCC.expected], other)
    assert ([], []) == (only.compared, only.differs)
    assert ["build of cpu is of another machine"] == [line.split(":")[0] for line in only.unknown]


def test_code_that_cannot_be_read_cannot_be_told() -> None:
    """A comparison that was not made is none."""
    other = compared(replace(found(), same_code=lambda build_id: None))
    assert ["code of cpu cannot be read, or the recipe's line made none"] == other.unknown
    assert "1 build" not in other.compared


def test_what_was_not_built_cannot_be_told() -> None:
    """Neither its checks nor its kernels; the step says why."""
    none = replace(found(), builds={}, checks={}, speeds={}, kernels={}, failures={"build": "no nvcc"})
    assert (["no build of cpu: no nvcc"], []) == (compared(none).unknown, compared(none).differs)


def test_kernels_that_nothing_read_cannot_be_told() -> None:
    """A kernel that is missing in a report differs."""
    none = replace(found(), kernels={}, failures={"resources": "no cuobjdump"})
    assert ["no kernels of cpu for sm_89 were read: no cuobjdump"] == compared(none).unknown
    renamed = replace(found(), kernels={("cpu", "sm_89", "_Z2k"): KERNEL})
    assert ["_Z1k of cpu is not in the report of the compiler"] == compared(renamed).differs


def test_speeds_of_another_machine_cannot_be_told() -> None:
    """Correctness can."""
    other = compared(replace(found(), machine=place(make_machine(processor="Other CPU"))))
    assert ["speeds are of another machine: processor Other CPU (recorded: Some CPU)"] == other.unknown
    assert "1 check" in other.compared


def test_other_registers_differ() -> None:
    """Each figure of a kernel has to be the same."""
    spilling = KERNEL.model_copy(update={"registers": 255, "spill_bytes": 16})
    other = compared(replace(found(), kernels={("cpu", "sm_89", "_Z1k"): spilling}))
    assert [
        "registers of _Z1k are 255 (recorded: 64)",
        "spill bytes of _Z1k are 16 (recorded: 0)",
    ] == other.differs


def test_a_session_that_found_nothing_cannot_be_told() -> None:
    """An empty list of expectations is no success."""
    assert ["the session found nothing that can be found again"] == compare(
        [place(make_machine())], found()
    ).unknown

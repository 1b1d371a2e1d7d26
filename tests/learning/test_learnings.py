"""Concrete sentences from records, and a next step with a command that can be pasted."""

from loop.learning.learnings import learnings, where_to_begin
from loop.model.debugging import Smallest, SmallestOutput
from tests.makers import make_check, make_finished, make_measured, make_measurement, make_verify

AGAIN = "loop run session baseline --variant cpu --device cpu --threads 8 --seed 7"


def test_best_and_worst_workloads_are_named() -> None:
    """With ratio and interval."""
    output = make_measured(make_measurement("slow", 1.1), make_measurement("quick", 2.0))
    sentence = "cpu does best on quick (2.00x [1.95, 2.05]) and worst on slow (1.10x [1.05, 1.15])."
    assert sentence in learnings([make_finished("measure", output=output)])


def test_noise_is_given_with_what_it_lets_one_resolve() -> None:
    """The half width of the interval that the same scatter leads to."""
    sentence = "A round's ratio scatters by 1.0 % on this machine: 5 rounds resolve differences of about 2.1 %."
    assert sentence in learnings([make_finished("measure", output=make_measured(make_measurement()))])


def test_a_ratio_made_by_noise_is_nobodys_best() -> None:
    """Only judged workloads are compared, and a scatter beyond all use is called so."""
    wild, good = make_measurement("wild", 4.0, interval=(0.1, 90.0)), make_measurement("good", 1.5)
    found = learnings([make_finished("measure", output=make_measured(wild, good, block_sd=3.3))])
    assert "cpu could not be judged on 1 of 2 workloads." in found
    assert "cpu runs at 1.50x [1.45, 1.55] of the baseline's speed on good." in found
    assert any(sentence.startswith("The machine was too disturbed to judge") for sentence in found)


def test_what_actions_learned_is_kept() -> None:
    """Their sentences stand last."""
    output = make_measured(learned=("pinning helps",))
    assert "pinning helps" == learnings([make_finished("measure", output=output)])[-1]


def test_where_to_look_is_said_with_the_file() -> None:
    """File, message, first failing workload."""
    output = make_verify(make_check("b", right=False))
    finished = [make_finished(status="failed", output=output)]
    assert "Look in cpu.cpp: 3 of 4096 elements wrong on b" == where_to_begin(finished, "cpu", ["cpu.cpp"])
    assert "" == where_to_begin(finished, "other", [])
    assert "" == where_to_begin([make_finished(output=make_verify())], "cpu", [])


def test_the_smallest_failing_workload_is_where_to_start() -> None:
    """Where debugging found one."""
    check = make_check("B1 H1 S65 D1 float32", right=False)
    small = Smallest(variant="cpu", check=check, began="w", words="B=1 S=65", seed=5, probes=9, minimal=True)
    output = SmallestOutput(ok=True, message="found", smallest=(small,))
    finished = (
        make_finished(status="failed", output=make_verify(make_check(right=False))),
        make_finished("smallest", action="debug.smallest", output=output),
    )
    assert where_to_begin(finished, "cpu", []).endswith("wrong on B1 H1 S65 D1 float32")


def test_steps_without_output_break_nothing() -> None:
    """An error before anything was found."""
    broken = [make_finished(status="failed", output={}), make_finished("measure", output={"traceback": "x"})]
    assert not learnings(broken)
    assert "" == where_to_begin(broken, "cpu", [])


def test_an_open_question_is_counted() -> None:
    """An interval around 1 is no verdict."""
    steps = [make_finished("measure", output=make_measured(make_measurement("b", 1.01)))]
    assert "cpu could not be judged on 1 of 1 workloads." in learnings(steps)

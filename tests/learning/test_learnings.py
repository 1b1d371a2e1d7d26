"""Concrete sentences from records, and a next step with a command that can be pasted."""

import pytest

from loop.base.stats import ratio_interval
from loop.learning.learnings import learnings, proposal, resolution
from loop.model.debugging import Smallest, SmallestOutput
from tests.makers import (
    make_build,
    make_built,
    make_check,
    make_finished,
    make_measured,
    make_measurement,
    make_session_head,
    make_verify,
)

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


def test_resolution_agrees_with_the_interval() -> None:
    """Logs with a standard deviation of exactly one per cent."""
    logs = [0.01 * (2 / 3) ** 0.5 * x for x in (-1.5, 0.5, 0.5, 0.5)]
    sd = (sum(value**2 for value in logs) / 3) ** 0.5
    ratio, low, _ = ratio_interval(logs)
    assert pytest.approx(resolution(4, sd), rel=0.05) == 1 - low / ratio


def test_overruns_are_told_with_their_factor() -> None:
    """Budget, time, and how many times as long."""
    sentence = "baseline-first/build took 25.0 s against a budget of 10 s, 2.5 times as long."
    assert sentence in learnings([make_finished("build", seconds=25.0)])


def test_the_cache_is_credited_only_with_what_it_held() -> None:
    """Compiling that was not repeated, and compiling that was done."""
    built = make_built(make_build(cached=True), make_build(variant="other", build_id="b", seconds=2.0))
    found = learnings([make_finished("build", output=built)])
    assert "The cache held cpu: 4.2 s of compiling were not repeated." in found
    assert "other was compiled in 2.0 s." in found


def test_where_a_variant_is_wrong_is_told() -> None:
    """First workload, first element, worst element."""
    output = make_verify(make_check("a"), make_check("b", right=False))
    found = learnings([make_finished(status="failed", output=output)])
    assert "cpu is incorrect on 1 of 2 workloads: b." in found
    assert "On b the first wrong element of cpu is at B=0 H=0 Sq=32 D=1, the worst at B=0 H=0 Sq=63 D=1." in found


def test_what_actions_learned_is_kept() -> None:
    """Their sentences stand last."""
    output = make_measured(learned=("pinning helps",))
    assert "pinning helps" == learnings([make_finished("measure", output=output)])[-1]


def test_an_incorrect_variant_comes_first_in_the_next_plan() -> None:
    """File, first failing workload, and the commands."""
    output = make_verify(make_check("b", right=False))
    text, verify, again = proposal(
        make_session_head(), [make_finished(status="failed", output=output)], {"cpu": ("cpu.cpp",)}
    ).splitlines()
    assert text.startswith("Mend cpu in cpu.cpp: 3 of 4096 elements wrong on b.")
    assert ("loop kernels verify cpu --device cpu --threads 8 --seed 7", AGAIN) == (verify, again)


def test_the_smallest_failing_workload_is_where_to_start() -> None:
    """Where debugging found one, with the command that shows it."""
    check = make_check("B1 H1 S65 D1 float32", right=False)
    small = Smallest(variant="cpu", check=check, began="w", words="B=1 S=65", seed=5, probes=9, minimal=True)
    output = SmallestOutput(ok=True, message="found", smallest=(small,))
    finished = (
        make_finished(status="failed", output=make_verify(make_check(right=False))),
        make_finished("smallest", action="debug.smallest", output=output),
    )
    text, verify, _ = proposal(make_session_head(), finished).splitlines()
    assert "Start from its smallest failing workload, B1 H1 S65 D1 float32, then" in text
    assert "loop kernels verify cpu --workloads 'B=1 S=65' --device cpu --threads 8 --seed 5" == verify


def test_a_broken_environment_is_proposed_with_its_mend() -> None:
    """Many lines of error stay one line: what follows the first line are commands."""
    broken = make_finished("torch", status="failed", message="no torch\nat all", hint="pip install torch")
    text, command = proposal(make_session_head(), [broken]).splitlines()
    assert "Mend baseline-first/torch: no torch at all. What usually cures it: pip install torch." in text
    assert AGAIN == command


def test_the_lowest_ratio_is_looked_at_next() -> None:
    """Short calls point to the cost of calling; the noise says what a change has to bring."""
    output = make_measured(make_measurement("a", 2.0), make_measurement("b", 0.8, candidate_us=4.0))
    text, command = proposal(make_session_head(), [make_finished("measure", output=output)]).splitlines()
    assert text.startswith("Profile next: cpu on b, its lowest ratio (0.80x [0.75, 0.85]). At 4.0 µs a call")
    assert text.endswith("A change has to bring over 2.1 % to show above this machine's noise.")
    assert AGAIN == command


def test_an_open_question_asks_for_more_rounds_not_for_a_change() -> None:
    """An interval around 1 is no reason to touch the kernel."""
    steps = [make_finished("measure", output=make_measured(make_measurement("b", 1.01)))]
    assert proposal(make_session_head(), steps).startswith("Measure again on a quieter machine")
    assert "cpu could not be judged on 1 of 1 workloads." in learnings(steps)


def test_variants_that_can_be_worked_on_are_proposed_before_others() -> None:
    """A library call that is slow is not ours to mend."""
    output = make_measured(make_measurement("a", 1.3), make_measurement("a", 0.4, variant="eager"))
    text = proposal(make_session_head(), [make_finished("measure", output=output)], {"cpu": ("cpu.cpp",)})
    assert text.startswith("Profile next: cpu on a")


def test_an_interrupted_session_is_to_be_resumed() -> None:
    """With the id, and the target where it is not the bundled one."""
    head = make_session_head(target_folder="/home/me/my kernel")
    command = proposal(head, [make_finished(status="aborted")]).splitlines()[1]
    assert "loop run session --resume 2026-11-21-120000-baseline --target '/home/me/my kernel'" == command


def test_steps_without_output_break_nothing() -> None:
    """An error before anything was found."""
    broken = [make_finished(status="failed", output={}), make_finished("measure", output={"traceback": "x"})]
    assert learnings(broken)
    assert proposal(make_session_head(), broken)


def test_good_verdicts_on_a_few_do_not_speak_for_the_rest() -> None:
    """Two of five judged, both well ahead: measure again. One of them behind is worth a look all the same."""

    def proposed(*judged: float) -> str:
        wild = [make_measurement(f"wild{n}", 1.0, interval=(0.01, 90.0)) for n in range(3)]
        output = make_measured(*(make_measurement(f"w{n}", one) for n, one in enumerate(judged)), *wild)
        return proposal(make_session_head(), [make_finished("measure", output=output)])

    assert "Leave the speed alone" in proposed(2.0, 3.0, 2.5)
    assert "Measure again" in proposed(2.0, 3.0)
    assert "3 of 5 timings could not be judged" in proposed(2.0, 3.0)
    assert "Profile next" in proposed(0.6, 3.0)

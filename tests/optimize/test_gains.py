"""What a session brought: kept changes in microseconds a call."""

import pytest

from loop.model.change import DecisionOutput, JudgedOutput, TriedChange
from loop.model.record import Finished
from loop.optimize.candidate import sum_gains
from loop.timing.against_known_good import CompareOutput
from tests.makers import make_finished, make_measurement


def change(run: int, outcome: str, *times: tuple[float, float], variant: str = "cpu") -> list[Finished]:
    """A change whose incumbent and own microseconds these are, on one workload each."""
    measured = tuple(
        make_measurement(
            f"w{place}", before / after, against="known_good", reference_us=before, candidate_us=after
        )
        for place, (before, after) in enumerate(times)
    )
    itself = make_measurement("w0", 1.0, against="self")
    compared = CompareOutput(ok=True, message="", measurements=(*measured, itself))
    compare = JudgedOutput(ok=True, message="", good=True, found=compared.model_dump(mode="json"))
    tried = TriedChange(number=run, variant=variant, outcome=outcome, reason="r")
    decision = DecisionOutput(ok=True, message="", kept=outcome == "kept", tried=tried)
    return [
        make_finished("compare", run=run, action="change.compare", output=compare),
        make_finished("decide", run=run, action="change.decide", output=decision),
    ]


def test_changes_that_build_upon_each_other_add_up() -> None:
    """Each the mean over its workloads; what was taken back saved nothing, whatever it measured."""
    records = [
        *change(1, "kept", (10.0, 8.0), (30.0, 26.0)),
        *change(2, "reverted", (8.0, 1.0)),
        *change(3, "kept", (8.0, 7.5)),
    ]
    found = sum_gains(records)
    assert (2, pytest.approx(3.5)) == (found.accepted, found.accepted_us)

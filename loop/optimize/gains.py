"""What did a session bring? Its kept changes, in microseconds a call."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from loop.model.change import DecisionOutput, as_of_target
from loop.model.measurement import Measurement
from loop.model.money import Gains
from loop.model.output import read_output
from loop.model.record import Finished, latest_attempts
from loop.timing.model import CompareOutput


def gains(finished: Iterable[Finished]) -> Gains:
    """The changes that were kept, and the microseconds that they save.

    What a change saves: the incumbent's time less its own, the mean over the workloads on which both were timed
    side by side. Changes build upon each other, so what they save is added up.
    """
    records = latest_attempts(finished)
    changes = [
        (r.run, read_output(as_of_target(r), CompareOutput)) for r in records if r.action == "change.compare"
    ]
    compared = {run: output.measurements for run, output in changes if output}
    decisions = [(record.run, read_output(record, DecisionOutput)) for record in records]
    kept = [(run, one.tried) for run, one in decisions if one and one.kept and one.tried]
    saved = [saved_us(compared.get(run, ()), tried.variant) for run, tried in kept]
    known = [one for one in saved if one is not None]
    return Gains(accepted=len(kept), accepted_us=sum(known) if known else None)


def saved_us(measurements: Sequence[Measurement], variant: str) -> float | None:
    """Microseconds a call by which a change is faster than the incumbent; None where they were not compared."""
    mine = [one for one in measurements if (one.variant, one.against) == (variant, "known_good")]
    return fmean(one.reference_us - one.candidate_us for one in mine) if mine else None

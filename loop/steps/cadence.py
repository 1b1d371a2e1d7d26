"""Did a session keep its promise never to be silent, and how good were its estimates?"""

from collections.abc import Iterable

from loop.model.output import StepTiming
from loop.model.record import Finished

REAL = ("passed", "failed")


def audit(records: Iterable[Finished]) -> tuple[tuple[StepTiming, ...], float, tuple[str, ...]]:
    """Timing of every step that ran, the longest silence in seconds, and the steps over their budget."""
    ran = [record for record in records if record.status in REAL]
    steps = tuple(
        StepTiming(
            step=f"{record.pattern}/{record.step}",
            budget_s=record.budget_s,
            seconds=record.seconds,
            longest_silence_s=record.longest_silence_s,
        )
        for record in ran
    )
    silence = max((step.longest_silence_s for step in steps), default=0.0)
    return steps, silence, tuple(step.step for step in steps if step.seconds > step.budget_s)

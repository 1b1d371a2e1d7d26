"""Who did what when: a line for each device, and on it a bar for each job that it ran."""

from collections.abc import Sequence

from loop.model.jobs import JobRun
from loop.report import format as say
from loop.report.figures import svg
from loop.report.figures.svg import Figure

LEFT, RIGHT, TOP = 12.0, svg.WIDTH - 12, 36.0
NAMED, BAR, GAP = 16.0, 12.0, 10.0
"""Heights: a device's name, its bars, what is between two devices."""
MOST_DEVICES = 24


def timeline(jobs: Sequence[JobRun]) -> Figure | None:
    """The figure; None where an executor ran nothing."""
    ran = sorted((job for job in jobs if job.seconds), key=lambda job: job.began)
    if not ran:
        return None
    began, ended = ran[0].began, max(job.began + job.seconds for job in ran)
    devices: dict[tuple[str, str], list[JobRun]] = {}
    for job in ran:
        devices.setdefault((job.host, job.uuid), []).append(job)
    parts, y = [svg.text(LEFT, 22, f"Jobs over {say.seconds(ended - began)}", "big ink")], TOP
    for mine in [*devices.values()][:MOST_DEVICES]:
        more, y = _device(mine, began, ended, y)
        parts += more
    if len(devices) > MOST_DEVICES:
        parts.append(svg.text(LEFT, y + 10, f"and {len(devices) - MOST_DEVICES} devices more", "soft"))
    again = sum(job.tries > 1 for job in jobs)
    said = f"{say.count(len(ran), 'job')} on {say.count(len(devices), 'device')}; {again} begun more than once"
    return svg.drawn("jobs", "Which device ran which job, and when", said, y + 16, parts)


def _device(jobs: Sequence[JobRun], began: float, ended: float, y: float) -> tuple[list[str], float]:
    """The name of a device and the bars of its jobs, below each other where they ran together; where they end."""
    one, busy = jobs[0], sum(job.seconds for job in jobs) / (ended - began)
    name = f"{one.device} {one.uuid[:12]} of {one.host}: {say.count(len(jobs), 'job')}, busy {busy:.0%}"
    parts, free, scale = [svg.text(LEFT, y + NAMED - 4, name, room=RIGHT - LEFT)], list[float](), RIGHT - LEFT
    for number, job in enumerate(jobs):
        line = next((at for at, until in enumerate(free) if until <= job.began), len(free))
        free[line : line + 1] = [job.began + job.seconds]
        x, wide = LEFT + scale * (job.began - began) / (ended - began), scale * job.seconds / (ended - began)
        kind = svg.hue(number) if job.state == "done" else "bad"
        parts.append(svg.rect(x, y + NAMED + line * (BAR + 2), max(1.0, wide - 0.5), BAR, kind))
    return parts, y + NAMED + len(free) * (BAR + 2) + GAP

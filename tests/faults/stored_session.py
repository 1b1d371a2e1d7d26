"""A finished session with samples and a report, written by the store itself: no torch has to be started for it."""

from pathlib import Path

from loop.base.documents import write_atomic
from loop.model.measurement import Segment
from loop.model.record import Closed, Opened
from loop.store.sessions import SessionFolder, write_figures
from tests.makers import make_finished, make_measured, make_measurement, make_record, make_speed
from tests.store.folders import make_session

SAMPLED = "samples/1-measure-1-measure.json"
WORKLOAD = "B1 H1 S64 D64 float32"


def make(root: Path) -> SessionFolder:
    """A session that measured one variant."""
    step = make_finished("measure", output=make_measured(make_measurement()), artifacts=(SAMPLED,))
    steps = (make_finished("verify"), step)
    folder = make_session(
        root, "2026-01-02-120000-quick", Opened(pid=7), *steps, Closed(status="passed"), status=""
    )
    rows = [
        Segment(side=side, workload=WORKLOAD, round=n, calls=3, seconds=(s * 1e-6, s * 1.1e-6))
        for n in range(1, 6)
        for side, s in (("cpu", 30.0 + n), ("baseline", 45.0 - n))
    ]
    folder.write_samples(Path(SAMPLED).stem, rows)
    folder.write_record(make_record(folder.head(), [make_speed(WORKLOAD)], lines=len(folder.lines())))
    write_figures(folder.path, {"figures/speed.svg": "<svg/>\n"})
    write_atomic(folder.report, "# A report\n\n![speed](figures/speed.svg)\n")
    return folder

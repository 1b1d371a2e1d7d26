"""Rows of samples, from which every ratio can be had again."""

import csv
import io
import re

from loop.model.measurement import Segment
from loop.session.samples import COLUMNS, as_csv
from loop.timing.samples import log_ratios
from tests.conftest import ROOT
from tests.makers import make_finished
from tests.report.test_html import HOSTILE


def sampled(side: str = "cpu", workload: str = "w", *seconds: float) -> Segment:
    """A segment of one round."""
    return Segment(side=side, workload=workload, round=0, calls=3, seconds=seconds or (1e-6, 2e-6))


def table(*segments: Segment) -> list[dict[str, str]]:
    """The rows of a CSV, read back."""
    text = as_csv("s", [(make_finished("measure"), segments)])
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_row_is_one_sample() -> None:
    """Every sample of every segment, in the order in which they were timed."""
    read = table(sampled(), sampled("baseline"))
    assert [("cpu", "0", "0"), ("cpu", "0", "1"), ("baseline", "1", "0"), ("baseline", "1", "1")] == [
        (row["variant"], row["segment"], row["sample"]) for row in read
    ]
    assert list(COLUMNS) == list(read[0])
    assert {"3"} == {row["calls"] for row in read}


def test_the_ratio_of_a_round_can_be_had_again_from_the_rows() -> None:
    """To the last digit."""
    timed = [sampled("baseline", "w", 3.1e-6, 2.9e-6, 3e-6), sampled("cpu", "w", 1.1e-6, 0.9e-6, 1.05e-6)]
    again = []
    for number in ("0", "1"):
        mine = [row for row in table(*timed) if row["segment"] == number]
        values = tuple(float(row["seconds"]) for row in mine)
        again.append(Segment(side=mine[0]["variant"], workload="w", round=0, calls=3, seconds=values))
    assert log_ratios(timed, "baseline", "cpu") == log_ratios(again, "baseline", "cpu")


def test_no_cell_is_a_formula_or_breaks_its_row() -> None:
    """A name that a spreadsheet would run gets an apostrophe; quotes, commas and line ends stay inside a cell."""
    names = ["=cmd|' /C calc'!A1", "+1", "-1", "@x", 'a,"b"\nc', HOSTILE]
    read = table(*(sampled(name, name) for name in names))
    assert 2 * len(names) == len(read)
    assert ["'=cmd|' /C calc'!A1", "'+1", "'-1", "'@x", 'a,"b" c'] == [row["variant"] for row in read[::2]][:5]
    assert all("\x1b" not in row["workload"] for row in read)


def test_the_document_names_every_column() -> None:
    """As the code has them, in their order."""
    documented = re.findall(r"^\| `(\w+)` \| (.*) \|$", (ROOT / "docs" / "exports.md").read_text(), re.MULTILINE)
    assert list(COLUMNS.items()) == [row for row in documented if row[0] in COLUMNS]

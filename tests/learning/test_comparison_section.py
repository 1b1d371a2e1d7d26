"""Sessions beside each other on a page: complete, escaped, and narrow enough."""

from loop.learning import comparison as page
from loop.learning.comparison import SessionComparison, compare
from loop.report.markdown import Table, columns
from loop.report.sections import markdown, pieces
from tests.learning.test_comparison import seen

HOSTILE = "\x1b[31m|<script>alert(1)</script>`$x$ [a](b)\u202e\x00\n# no"


def text(found: SessionComparison) -> str:
    """The page as Markdown."""
    return markdown("Sessions", page.sections(found))


def test_hostile_text_stays_text() -> None:
    """Names, reasons and files of records, on a terminal and in Markdown."""
    bad = seen("b", facts={"torch": HOSTILE}, target=HOSTILE)
    found = text(compare([seen("a"), bad]))
    assert "\x1b" not in found
    assert "\x00" not in found
    assert "\u202e" not in found
    assert "<script" not in found
    assert not [line for line in found.splitlines() if line.startswith("# no")]


def test_a_table_that_is_too_wide_comes_in_pieces() -> None:
    """All columns once, in their order; each piece begins with what names its rows, and fits."""
    heads = columns("Workload", *(f">{letter}" for letter in "ABCDEFGHIJKL"), "Change")
    row = ("B1 H1 S64 D64 causal float32", *(f"{n}.00x" for n in range(10, 22)), "1.20x higher")
    found = list(pieces(Table(heads, (row,)), 80))
    assert 2 == len(found)
    assert [row[1:], heads[1:]] == [
        tuple(cell for one in found for cell in one.rows[0][1:]),
        tuple(head for one in found for head in one.columns[1:]),
    ]
    assert {row[0]} == {one.rows[0][0] for one in found}
    assert all(20 + sum(2 + len(cell) for cell in one.rows[0][1:]) <= 80 for one in found)
    narrow = Table(columns("a", "b"), (("1", "2"),))
    assert [narrow] == list(pieces(narrow, 80))
    assert [narrow] == list(pieces(narrow, 1))

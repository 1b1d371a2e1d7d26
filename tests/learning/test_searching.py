"""Finding by a few words: exact before near, and the page's script finds the same."""

import json
import random
import shutil
import subprocess

import pytest

from loop.base.places import shipped
from loop.learning.searching import search

BASELINE = ("baseline-first", ((8.0, "baseline-first Baseline first"), (5.0, "without a measured baseline")))
LINKING = ("linking", ((8.0, "linking Single unit"), (5.0, "undefined symbol: rows_of link error")))
TUNING = ("tuning", ((8.0, "tuning Tuning"), (5.0, "tiles and warps are guessed, not the baseline")))
ALL = (TUNING, LINKING, BASELINE)


def found(question: str) -> list[str]:
    """Names, the best first."""
    return [hit.key for hit in search(question, ALL)]


def test_a_name_comes_before_a_mention() -> None:
    """Whose title it is, then who speaks of it."""
    assert ["baseline-first", "tuning"] == found("baseline")


@pytest.mark.parametrize("typed", ["base", "aselin", "BASELINE"])
def test_parts_are_found(typed: str) -> None:
    """A beginning, a part; in any case."""
    assert "baseline-first" == found(typed)[0]


@pytest.mark.parametrize("typed", ["", "   ", "?!", "zzzz", "unt", "basline"])
def test_what_is_not_there_is_not_found(typed: str) -> None:
    """A word has to be right."""
    assert [] == found(typed)


def test_a_pasted_error_finds_what_has_most_of_it() -> None:
    """Paths and addresses of it are in no text; how many words fitted is said."""
    hits = search("/tmp/x/kernel.so: undefined symbol: rows_of", ALL)
    assert ["linking"] == [hit.key for hit in hits]
    assert hits[0].matched < hits[0].asked


def test_words_that_say_nothing_count_only_alone() -> None:
    """`the` does not bring up everything that has it."""
    assert ["linking"] == found("the link error")
    assert ["tuning"] == found("the")


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_pages_script_ranks_alike() -> None:
    """The same texts and questions through both: the same names in the same order."""
    chance = random.Random(5)
    vocabulary = ["baseline", "symbol", "undefined", "tiles", "warps", "gate", "drift", "é12", "latency", "cpu"]
    entries = [
        (str(n), tuple((float(w), " ".join(chance.choices(vocabulary, k=4))) for w in (8, 5, 2)))
        for n in range(40)
    ]
    questions = ["baselin", "undefined symbol", "warp gate", "lat", "é12 the", "nothing fits here", "drif cpu"]
    rows = [["pattern", key, "", "", [list(field) for field in fields]] for key, fields in entries]
    program = (
        "const {prepare, search} = require(process.argv[1]);"
        "const [rows, asked] = JSON.parse(require('fs').readFileSync(0));"
        "const index = prepare(rows);"
        "console.log(JSON.stringify(asked.map((q) => search(q, index).hits.map((n) => rows[n][1]))));"
    )
    script = shipped("templates") / "site" / "site.js"
    done = subprocess.run(
        ["node", "-e", program, str(script)],
        input=json.dumps([rows, questions]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "" == done.stderr
    assert [[hit.key for hit in search(asked, entries)] for asked in questions] == json.loads(done.stdout)

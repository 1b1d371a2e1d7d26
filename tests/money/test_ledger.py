"""The ledger: sums over rows; unknown is None and never 0, classes of evidence are never added up."""

from typing import Any

import pytest

from loop.base.errors import LoopError
from loop.model.ledger import Account, Avoided, Book, Spent, Worked
from loop.money.ledger import BETWEEN, OPEN, WHOLE, choose, ledger, new_bugs, settle, week
from loop.money.totals import Saved


def account(session: str = "a", **fields: Any) -> Account:
    """A session of a minute on a processor."""
    base: dict[str, Any] = {
        "session": session,
        "started": "2026-11-21T12:00:00+00:00",
        "target": "attention",
        "plan": "quick",
        "device": "cpu",
        "gpu": None,
        "status": "passed",
        "seconds": 60.0,
        "recorded": False,
        "energy_j": None,
        "accepted": 0,
        "accepted_us": None,
        "unmeasured": {"ai": "nobody read a log", "energy": "no counter"},
        "judged": {},
        "notes": (),
    }
    return Account(**{**base, **fields})


def spent(session: str, resource: str, usd: float, **fields: Any) -> Spent:
    """A charge."""
    return Spent(**{"session": session, "resource": resource, "rate": "r", "seconds": 60.0, "usd": usd,
                    "basis": "measured", **fields})  # fmt: skip


def avoided(session: str, evidence: str, usd: float, low: float, high: float) -> Avoided:
    """A saving of as many minutes as dollars."""
    return Avoided(session, "p", evidence, usd, low, high, usd, low, high)


THREE = (account("a"), account("b", target="softmax"), account("c", started="2026-11-30T12:00:00+00:00"))


def test_totals_are_sums_of_the_chosen_sessions() -> None:
    """Two of three sessions; the third one's charge does not count."""
    book = Book(THREE, (spent("a", "engineer", 1.0), spent("b", "gpu", 0.25), spent("c", "engineer", 9.0)))
    made = ledger(book, THREE[:2], "session")
    assert (2, 2.0, 1.25) == (made.totals.sessions, made.totals.minutes, made.totals.usd)
    assert (0.25, 1.0) == (made.totals.of("gpu"), made.totals.of("engineer"))
    assert {"a": 1.0, "b": 0.25} == {name: row.usd for name, row in made.rows.items()}


def test_what_nobody_measured_is_none_and_what_was_not_used_is_zero() -> None:
    """AI and energy are unknown here; no GPU was held, and that is known."""
    totals = ledger(Book(THREE, ()), THREE, "session").totals
    assert (None, None, 0.0) == (totals.of("ai"), totals.of("energy"), totals.of("gpu"))
    assert 0.0 == totals.usd


def test_a_known_cost_beside_an_unknown_one_is_the_known_one_and_a_note() -> None:
    """One session of two was metered: its dollars are shown, and that the other's are missing."""
    metered = account("a", unmeasured={})
    made = ledger(Book((metered, THREE[1]), (spent("a", "ai", 0.5),)), (metered, THREE[1]), "session")
    assert 0.5 == made.totals.of("ai")
    assert "AI: not measured in 1 of 2 sessions (nobody read a log)" in made.notes
    assert [0.5, None] == [row.of("ai") for row in made.rows.values()]


def test_what_was_stated_is_said_to_be() -> None:
    """An amount that somebody typed stands in the sums, with a note."""
    made = ledger(Book(THREE, (spent("a", "ai", 0.5, basis="stated"),)), THREE, "session")
    assert "stated by somebody, not measured: charges of 1 of 3 sessions" in made.notes


def test_a_session_that_never_closed_is_charged_like_the_last_one_that_did() -> None:
    """30 s at the cent a second of the last closed session on a processor; another device says nothing of it."""
    accounts = (*THREE, account("open", status=None, seconds=30.0), account("gpu", status=None, device="cuda"))
    book = Book(accounts, (spent("a", "engineer", 6.0), spent("c", "engineer", 0.6), spent("c", "ai", 2.0)))
    found = settle(book)
    (charge,) = found.spent[3:]
    assert ("open", "engineer", 30.0, pytest.approx(0.3)) == (
        charge.session,
        charge.resource,
        charge.seconds,
        charge.usd,
    )
    assert ["open", None] == [one.status for one in found.accounts[3:]]
    assert (OPEN,) == found.accounts[3].notes


def test_sessions_are_grouped_by_target_and_by_week() -> None:
    """Weeks as ISO 8601 counts them; a session without a clock has none."""
    book = Book((*THREE, account("d", started=None)), (spent("c", "engineer", 2.0),))
    assert {"attention": 3, "softmax": 1} == {
        n: r.sessions for n, r in ledger(book, book.accounts, "target").rows.items()
    }
    weeks = ledger(book, book.accounts, "week").rows
    assert {"2026-W47": 0.0, "2026-W49": 2.0, "undated": 0.0} == {name: row.usd for name, row in weeks.items()}
    assert "2027-W53" != week("2027-01-01T00:00:00+00:00") == "2026-W53"


def test_time_is_shared_out_by_pattern_and_ai_is_not() -> None:
    """A minute at 60 cents: 30 s of one pattern, 20 s of another, 10 s between them."""
    book = Book(
        THREE[:1],
        (spent("a", "engineer", 0.6), spent("a", "ai", 0.5)),
        worked=(Worked("a", "verify", 30.0), Worked("a", "measure", 15.0), Worked("a", "measure", 5.0)),
    )
    rows = ledger(book, THREE[:1], "pattern").rows
    dollars = {name: row.usd for name, row in rows.items()}
    assert pytest.approx({"verify": 0.3, "measure": 0.2, BETWEEN: 0.1, WHOLE: 0.5}) == dollars
    assert pytest.approx(1.0) == sum(row.minutes for row in rows.values())


def test_patterns_share_all_of_it_where_they_took_longer_than_the_session() -> None:
    """As after a clock that jumped: nothing is charged twice, nothing is lost."""
    book = Book(THREE[:1], (spent("a", "gpu", 0.6),), worked=(Worked("a", "p", 90.0), Worked("a", "q", 30.0)))
    rows = ledger(book, THREE[:1], "pattern").rows
    assert pytest.approx({"p": 0.45, "q": 0.15}) == {name: row.of("gpu") for name, row in rows.items()}


def test_a_prior_never_stands_in_a_measured_sum() -> None:
    """One sum a class, each with its own interval and return."""
    book = Book(
        THREE[:1],
        (spent("a", "engineer", 2.0),),
        (avoided("a", "measured", 4.0, 3.0, 5.0), avoided("a", "prior", 90.0, 90.0, 90.0),
         avoided("a", "measured", 2.0, 1.0, 2.0)),
    )  # fmt: skip
    made = ledger(book, THREE[:1], "session")
    assert {"measured", "prior"} == set(made.saved)
    measured = made.saved["measured"]
    assert (6.0, 4.0, 7.0) == (measured.usd, measured.usd_low, measured.usd_high)
    assert (2.0, 1.0, 2.5) == measured.roi(made.own_usd)
    assert None is Saved(usd=3.0).roi(0.0)


def test_the_return_is_on_what_sessions_run_here_cost() -> None:
    """A history of 40 dollars that was imported does not make the savings of today's session worth less."""
    old = account("n", recorded=True, started=None)
    book = Book((old, THREE[0]), (spent("n", "gpu", 40.0), spent("a", "engineer", 2.0)))
    made = ledger(book, book.accounts, "session")
    assert (42.0, 2.0) == (made.totals.usd, made.own_usd)


def test_cost_by_accepted_microsecond_counts_what_was_not_accepted_too() -> None:
    """Three dollars in all, of which one session kept 4 µs a call and the next 2: half a dollar each."""
    kept = (account("a", accepted=1, accepted_us=4.0), account("b", accepted=2, accepted_us=2.0), account("c"))
    made = ledger(Book(kept, tuple(spent(one.session, "engineer", 1.0) for one in kept)), kept, "session")
    assert (3, 6.0, 0.5) == (made.accepted, made.accepted_us, made.usd_per_accepted_us)
    assert None is ledger(Book(THREE, ()), THREE, "session").usd_per_accepted_us


def test_a_bug_is_found_once() -> None:
    """It is new where the variant was good before, or was never judged; it may come back after it was mended."""
    told = [
        ("s1", {"v": True}),
        ("s2", {"v": False, "w": False}),
        ("s3", {"v": False}),
        ("s4", {"v": True}),
        ("s5", {"v": False}),
    ]
    assert {"s2": ("v", "w"), "s5": ("v",)} == new_bugs(told)


def test_a_bug_that_was_known_before_the_chosen_sessions_is_not_found_again() -> None:
    """All sessions are looked at, whatever is shown."""
    two = (account("a", judged={"v": False}), account("b", judged={"v": False}))
    book = Book(two, (spent("a", "engineer", 3.0), spent("b", "engineer", 5.0)))
    assert 3.0 == ledger(book, two[:1], "session").usd_per_bug
    assert None is ledger(book, two[1:], "session").usd_per_bug
    assert 8.0 == ledger(book, two, "session").usd_per_bug


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (None, "abc"), ("a..b", "ab"), ("b..", "bc"), ("..b", "ab"), ("b", "b"), ("last", "c"), ("a..last", "abc"),
        ("last~1", "b"), ("last~1..last", "bc"),
        ("..", "abc"),
    ],
)  # fmt: skip
def test_sessions_are_chosen_by_a_range(words: str | None, expected: str) -> None:
    """From one to another, open at either end, or one alone."""
    assert list(expected) == [one.session for one in choose(THREE, words)]


def test_recorded_sessions_answer_to_the_names_in_their_reports() -> None:
    """`N+4` is `recorded-6c9386-n+4`, and `N` is no other."""
    names = [account(f"recorded-6c9386-{name}", recorded=True) for name in ("n", "n+4", "n+7a")]
    assert names[:2] == choose(names, "N..N+4")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("x", "no such session"),
        ("b..a", "a comes before b"),
        ("a..zzz", "zzz: no such session"),
        ("last~3", "no such session"),
    ],
)
def test_a_range_that_is_none_is_refused(words: str, said: str) -> None:
    """With what is wrong with it."""
    with pytest.raises(LoopError, match=said):
        choose(THREE, words)


def test_a_beginning_that_several_have_is_refused() -> None:
    """Nothing is guessed."""
    with pytest.raises(LoopError, match="2 sessions begin so"):
        choose((account("2026-a"), account("2026-b")), "2026")

"""A wrong variant stays wrong until it passes on other sources, whatever sessions run, in any order."""

import datetime
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from loop.learning.next_plan import ALL_RIGHT, Idea, TargetState, propose_sessions, wrong_sentence
from loop.model.index import SessionRow
from loop.model.measurement import VariantChecks
from loop.model.output import VerifyOutput
from loop.model.record import Line
from loop.store.sessions import session_row
from tests.makers import NOON, make_check, make_finished, make_record, make_session_head

VARIANTS = ("fast", "slow")
SETS = {"quick": ("S64", "S128"), "edges": ("S1", "S65", "S127")}
EVERY = tuple(name for names in SETS.values() for name in names)


@dataclass(frozen=True)
class Source:
    """One version of a variant, and the calls in which it is wrong."""

    build: str
    wrong_on: frozenset[str] = frozenset()
    seeds: frozenset[int] | None = None
    """Seeds with which it is wrong; None: all."""
    threads: int | None = None
    """Thread count with which it is wrong; None: any."""
    moody: bool = False
    """Whether it is wrong in half of the calls only."""

    def passes(self, workload: str, seed: int, threads: int, mood: float) -> bool:
        fails = self.seeds is None or seed in self.seeds
        fails = fails and self.threads in (None, threads) and not (self.moody and mood < 0.5)
        return not (workload in self.wrong_on and fails)


@dataclass
class Project:
    """A target with two variants, its sessions, and random edits."""

    dice: random.Random
    sources: dict[str, Source] = field(default_factory=lambda: {name: Source(f"{name} 0") for name in VARIANTS})
    earlier: list[tuple[str, Source]] = field(default_factory=list)
    rows: list[SessionRow] = field(default_factory=list)
    failed: list[tuple[tuple[object, ...], str, int]] = field(default_factory=list)
    """Check, build and number of the session, of all that failed."""
    passed: list[tuple[tuple[object, ...], str, int]] = field(default_factory=list)
    judged: set[tuple[str, str, str]] = field(default_factory=set)
    """The target's files, variant and workload."""

    @property
    def ground(self) -> str:
        """Hash of its files."""
        return " ".join(source.build for source in self.sources.values())

    @property
    def present(self) -> TargetState:
        """The current target."""
        return TargetState(files_hash=self.ground, declared_workloads=dict.fromkeys(VARIANTS, SETS), for_gpu=False)

    def edit(self) -> None:
        """Replace a variant by a right, a wrong or an earlier version."""
        name, dice = self.dice.choice(VARIANTS), self.dice
        self.earlier.append((name, self.sources[name]))
        if dice.random() < 0.4:
            name, source = dice.choice(self.earlier)
            self.sources[name] = source
            return
        wrong = frozenset(dice.sample(EVERY, dice.choice((0, 1, 2, 3))))
        seeds, threads = (
            dice.choice((None, None, frozenset({dice.randrange(2)}))),
            dice.choice((None, None, None, 2)),
        )
        number = len(self.earlier)
        self.sources[name] = Source(f"{name} {number}", wrong, seeds, threads, moody=dice.random() < 0.3)

    def mend(self) -> None:
        """Replace all variants by right ones, with new files."""
        self.earlier += self.sources.items()
        self.sources = {name: Source(f"{name} mended {len(self.rows)}") for name in VARIANTS}

    def run(self, variants: Sequence[str], sets: Sequence[str], seed: int, threads: int, plan: str) -> None:
        """A session that verifies these variants on these sets."""
        number, sides = len(self.rows), []
        for name in variants:
            source, checks = self.sources[name], []
            for workload in (workload for chosen in sets for workload in SETS[chosen]):
                right = source.passes(workload, seed, threads, self.dice.random())
                record = self.passed if right else self.failed
                record.append(((name, workload, seed, threads), source.build, number))
                self.judged.add((self.ground, name, workload))
                checks.append(make_check(workload, right=right))
            sides.append(VariantChecks(variant=name, build_id=source.build, checks=tuple(checks)))
        right = tuple(side.variant for side in sides if side.is_right)
        wrong = tuple(side.variant for side in sides if not side.is_right)
        output = VerifyOutput(
            ok=not wrong, message="m", variants=tuple(sides), seed=seed, right=right, wrong=wrong
        )
        head = make_session_head(
            id=f"s{number:03}", started=NOON + datetime.timedelta(hours=number), ground=self.ground,
            harness="h", seed=seed, threads=threads, variants=tuple(variants),
        )  # fmt: skip
        head = head.model_copy(
            update={
                "plan": head.plan.model_copy(update={"plan": head.plan.plan.model_copy(update={"name": plan})})
            }
        )
        status = "failed" if wrong else "passed"
        line = Line(seq=1, at=head.started, event=make_finished(output=output, status=status))
        row = session_row(head, make_record(head, status=status), [line])
        self.rows.append(row.model_copy(update={"ratios": dict.fromkeys(right, 2.0)}))

    def advised(self) -> Idea:
        """The proposal of `loop plan next`."""
        return propose_sessions(self.rows, self.present)[0]

    def follow(self) -> None:
        """Run the advised session."""
        idea, everywhere = self.advised(), tuple(SETS)
        variants = (idea.variant,) if idea.variant else VARIANTS
        if idea.failed_check:
            again = idea.failed_check
            self.run(variants, everywhere, again.judgement.seed, again.row.threads, idea.plan)
        else:
            sets = ("quick",) if idea.plan == "quick" else everywhere
            self.run(variants, sets, self.dice.randrange(2), 1, idea.plan)

    def session(self) -> None:
        """Run a random session."""
        variants = self.dice.choice((VARIANTS, VARIANTS[:1], VARIANTS[1:]))
        sets = self.dice.choice((("quick",), ("edges",), ("quick", "edges")))
        plan = self.dice.choice(("quick", "baseline", "mine"))
        self.run(variants, sets, self.dice.randrange(2), self.dice.choice((1, 1, 2)), plan)

    def wrong(self) -> Iterator[str]:
        """Variants with a check that failed and has not passed on other sources since, by the rule itself."""
        judged = {name for ground, name, _ in self.judged if ground == self.ground}
        builds = {name: source.build for name, source in self.sources.items() if name in judged}
        for check, build, number in self.failed:
            since = any(
                (check, True) == (passed, at > number and built != build) for passed, built, at in self.passed
            )
            if not since or builds.get(str(check[0])) == build:
                yield str(check[0])

    def unjudged(self) -> bool:
        """Whether a variant has a workload that no session judged on these files."""
        return any((self.ground, name, workload) not in self.judged for name in VARIANTS for workload in EVERY)


@pytest.mark.parametrize("seed", range(40))
def test_wrong_stays_wrong_in_any_order(seed: int) -> None:
    """Fail, the advised command, mend, fail again, other plans, seeds, threads and variants."""
    project = Project(random.Random(seed))
    events = (*[project.edit] * 6, project.mend, *[project.follow] * 4, *[project.session] * 9)
    for _ in range(30):
        project.dice.choice(events)()
        wrong = set(project.wrong())
        state = " ".join(project.present.describe_state(project.rows))
        assert wrong == {*project.present.failures_by_variant(project.rows)}
        assert ("every output was right" in state) == (not wrong and not project.unjudged())
        idea = project.advised()
        assert ALL_RIGHT not in idea.why or not (wrong or project.unjudged())
        assert not wrong or idea.variant in wrong, "what is wrong comes first"
        assert all(f"{name} was wrong" in state for name in wrong)


@pytest.mark.parametrize("seed", range(10))
def test_the_advised_command_leads_to_a_clean_state(seed: int) -> None:
    """After mending, advised sessions repeat each failure, then judge the rest; then nothing is wrong."""
    project = Project(random.Random(1000 + seed))
    for _ in range(12):
        project.dice.choice((project.edit, project.follow, project.session, project.session))()
    project.mend()
    for _ in range(40):
        if project.advised().plan == "quick" and not project.advised().failed_check:
            break
        project.follow()
    assert (ALL_RIGHT,) == project.present.describe_state(project.rows)


def test_a_variant_that_declines_most_workloads_is_told_so() -> None:
    """ "Nothing is wrong" is only said if at least half of the workloads were judged."""
    project = Project(random.Random(0))
    project.run(VARIANTS, tuple(SETS), 1, 1, "baseline")
    twice, too_many = replace(project.present, workload_count=2 * len(EVERY)), 2 * len(EVERY) + 1
    assert (ALL_RIGHT,) == twice.describe_state(project.rows)
    state = replace(twice, workload_count=too_many).describe_state(project.rows)[0]
    assert f"was judged on {len(EVERY)} of {too_many} workloads alone: name more" in state


def test_what_the_same_sources_pass_later_is_flaky() -> None:
    """It counts as wrong, and the sentence calls it flaky."""
    project = Project(random.Random(0))
    project.sources["fast"] = Source("b", frozenset({"S65"}))
    project.run(("fast",), ("edges",), 1, 1, "edges")
    project.sources["fast"] = Source("b")
    project.run(("fast",), ("edges",), 1, 1, "edges")
    (sentence,) = map(wrong_sentence, project.present.failures_by_variant(project.rows).values())
    assert "fast was wrong in s000 on S65 (1 thread, seed 1)" in sentence
    assert "s001: it is flaky" in sentence


def test_a_workload_that_the_target_no_longer_has_cannot_keep_a_variant_wrong() -> None:
    """A variant counts as right if it passes on the workloads that exist."""
    project = Project(random.Random(0))
    project.sources["fast"] = Source("b", frozenset({"S65"}))
    project.run(("fast",), ("edges",), 1, 1, "edges")
    gone = TargetState(files_hash="new", declared_workloads={"fast": {"quick": SETS["quick"]}})
    project.run(("fast",), ("quick",), 1, 1, "quick")
    assert gone.failures_by_variant(project.rows)
    project.sources["fast"] = Source("c")
    project.run(("fast",), ("quick",), 1, 1, "quick")
    assert not gone.failures_by_variant(project.rows)
    assert project.present.failures_by_variant(project.rows)

"""Definitions, the rate card and the history from files: every mistake where it stands."""

import datetime
from pathlib import Path

import pytest

from loop.base.errors import DefinitionError, LoopError
from loop.library import definitions, targets, trust
from loop.library.definitions import Project, find_project
from loop.library.rates import rates
from loop.model.money import RateCard
from loop.money.bill import SessionUse, make_bill
from loop.session.recorded import read_histories
from tests.projects import TARGET, add_commands, make_project


def complaint(text: str, folder: Path) -> str:
    """The complaint about a target.yaml."""
    make_project(folder)
    (folder / "target.yaml").write_text(text)
    with pytest.raises(DefinitionError) as caught:
        targets.read_target(find_project(folder, folder))
    return str(caught.value)


def test_everything_that_ships_is_well_formed(tmp_path: Path) -> None:
    """Patterns by number, plans, target, rates and history."""
    bundled = find_project(None, tmp_path)
    numbers = [read.value.number for read in definitions.patterns(bundled).values()]
    assert [*range(1, 21)] == numbers
    plans = {"baseline", "bisect", "debug", "kernels", "optimize", "quick", "tune"}
    assert plans == set(definitions.plans(bundled))
    for plan in (read.value for read in definitions.plans(bundled).values()):
        estimates = [definitions.patterns(bundled)[name].value.estimate.minutes for name in plan.patterns]
        assert plan.budget.minutes >= sum(estimates), f"{plan.name} is expected to take longer than its budget"
    assert "attention" == targets.read_target(bundled).value.name
    assert rates(bundled).find_rate(rates(bundled).gpu) is not None
    assert 9 == len(read_histories()[0].sessions)


def test_a_file_is_named_as_what_it_defines(tmp_path: Path) -> None:
    """If file and definition have different names, one of them is a mistake."""
    folder = make_project(tmp_path / "p")
    add_commands(folder, "mine", ["true"])
    (folder / "patterns" / "mine.yaml").rename(folder / "patterns" / "yours.yaml")
    with pytest.raises(DefinitionError, match=r"yours\.yaml:3:7: name: expected 'yours', the file's name"):
        definitions.patterns(find_project(folder, tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (", M: [5, 17]", "", "workloads.small.0: expected a size for M, got nothing"),
        (
            "kind: number",
            "kind: nubmer",
            "expected 'flag', 'choice', 'number' or 'text', got 'nubmer' (did you mean 'number'?)",
        ),
        ("entry: scale", "entyr: scale", "did you mean 'entry'?"),
        ("float32: {atol", "float64: {atol", "expected types with a tolerance, got float32"),
        (
            "function: scale",
            "function: scale\nflops: N * Q",
            "target.yaml:5:8: flops: expected a known name, got 'Q'",
        ),
        (
            "{kind: c_abi, device: cpu, sources: [scale.c], entry: scale, build: {compiler: gcc, flags: [-O1]}}",
            "{kind: command, device: cpu, run: [./p, '--n={Nn}', '{x}', '${HOME}', '{ print }']}",
            "variants.ours.run.1: expected one of {N}, {M}, {factor}, {x}, {output}, {dtype}, got '--n={Nn}'"
            " (did you mean 'N'?)",
        ),
        ("format: 2", "format: 3", "format: expected"),
        ("[scale.c]", "[nope.c]", "variants.ours.sources.0: expected a file, got nope.c, which is not there"),
        (
            "entry: scale,",
            "entry: scale, instances: [{symbol: 's<{T}>', over: {T: [int]}, file: no.cu, line: 'make s<{T}>;'}],",
            "variants.ours.instances.0.file: expected a file, got no.cu, which is not there",
        ),
        (
            "entry: scale,",
            "entry: scale, instances: [{symbol: 's<{T}>', over: {T: [int]}, file: s.c, line: 'make s<{N}>;'}],",
            "variants.ours.instances.0.line: expected {T} in it, as in `over`, got {N}",
        ),
        (
            "M: [5, 17]",
            "M: 5, dtype: float16",
            "workloads.small.0.dtype: expected types with a tolerance, got float16",
        ),
    ],
)
def test_mistakes_in_a_target_are_found_where_they_stand(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The complaint has line, column, expected value and the nearest right word."""
    assert old in TARGET
    assert message in complaint(TARGET.replace(old, new, 1), tmp_path / "p")


def test_an_unknown_name_comes_with_the_nearest_one(tmp_path: Path) -> None:
    """The hint asks whether the nearest name was meant."""
    plans = definitions.plans(find_project(None, tmp_path))
    with pytest.raises(LoopError) as caught:
        definitions.choose(plans, "quik", "plan")
    assert ("no plan 'quik'", "did you mean 'quick'?") == (caught.value.message, caught.value.hint)


COMPONENT = """
components:
  part: {of: ours, title: t, entry: part, workloads: [{N: 3, K: 4}], reference: {python: "functions:scale"},
    signature: {inputs: {y: N K}, outputs: {output: N K}, types: {y: float64}}}
"""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("of: ours", "of: theirs", "components.part.of: expected a compiled variant (ours), got 'theirs'"),
        (
            "K: 4",
            "M: 4",
            "components.part.workloads.0.M: expected one of N, K, dtype, values, weight, got an unknown name",
        ),
        ("{y: float64}", "{x: float64}", "signature.types.x: expected one of y, output, got 'x'"),
        ("title: t,", "title: t, output: N,", "part: expected either `signature` or `output`, got both"),
        (
            "title: t,",
            "title: t, values: {odd: {x: {}}},",
            "components.part.values.odd.x: expected one of y, got 'x'",
        ),
    ],
)
def test_mistakes_in_a_component_are_found_where_they_stand(old: str, new: str, text: str, tmp_path: Path) -> None:
    """Against its own signature, not the target's."""
    assert old in COMPONENT
    assert text in complaint(TARGET + COMPONENT.replace(old, new, 1), tmp_path / "p")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("values: {sharp: {y: {scale: 2.0}}}", "values.sharp.y: expected one of x, got 'y'"),
        ("values: {hole: {x: {nan_along: K}}}", "nan_along: expected a dimension of x (N M), got 'K'"),
        (
            "values: {wide: {x: {scale: 2.0}}}",
            "expected a name of its own (normal, wide, constant are there always)",
        ),
        ("memory: 8 * K", "memory: expected a known name, got 'K'"),
    ],
)
def test_kinds_of_values_name_inputs_and_dimensions_that_there_are(line: str, text: str, tmp_path: Path) -> None:
    """A misspelt input would silently get unit normals."""
    assert text in complaint(f"{TARGET}\n{line}\n", tmp_path / "p")


CARD = """format: 1
gpu: mine
waiting: me
rates:
  - {name: me, resource: engineer, usd_per_hour: 80, source: s, as_of: 2026-01-01}
  - {name: mine, resource: gpu, usd_per_hour: PRICE, source: s, as_of: 2026-01-01}
"""
MACHINE = """machines:
  - {gpu: NVIDIA L4, cloud: gcp, region: us-central1, shape: g2-standard-4, PRICES, source: s, as_of: 2026-01-01}
"""


def card(folder: Path, text: str) -> RateCard:
    """The card of a project that has this one of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "target.yaml").touch()
    (folder / "rates.yaml").write_text(text)
    return rates(find_project(folder, folder))


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ("0", "expected greater than 0"),
        ("700.0", "expected less than 500"),
        (".nan", "expected a finite number"),
        ("", "expected a valid number, got nothing"),
        ("free", "expected a valid number, got 'free'"),
    ],
)
def test_a_price_that_is_none_is_refused_where_it_stands(tmp_path: Path, price: str, message: str) -> None:
    """The complaint has file, line and column; catalogues write 0 or 700 for "not offered"."""
    with pytest.raises(DefinitionError) as caught:
        card(tmp_path / "p", CARD.replace("PRICE", price))
    assert "rates.yaml:6:47: rates.1.usd_per_hour: " in caught.value.message
    assert message in caught.value.message


def test_an_own_card_goes_before_the_shipped_one(tmp_path: Path) -> None:
    """Its values override the shipped card's; other values stay, and it may name entries of both."""
    text = CARD.replace("PRICE", "1.5").replace("gpu: mine", "gpu: aws/us-east-1/g5.xlarge")
    merged = card(tmp_path / "p", text + MACHINE.replace("PRICES", "on_demand: 0.5"))
    prices = {
        name: rate.usd_per_hour
        for name in ("mine", "gcp/us-central1/g2-standard-4")
        if (rate := merged.find_rate(name))
    }
    assert {"mine": 1.5, "gcp/us-central1/g2-standard-4": 0.5} == prices
    chosen = merged.find_rate(merged.gpu)
    assert chosen is not None
    assert ("NVIDIA A10G", 1.006) == (chosen.gpu, chosen.usd_per_hour)
    assert None is merged.find_rate("gcp/us-central1/g2-standard-4/spot")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu: engineer", "2:6: gpu: expected a rate of gpu, got 'engineer', a rate of engineer"),
        ("waiting: history-l4", "2:10: waiting: expected a rate of engineer or ai, got 'history-l4'"),
        ("ai: history-l4", "2:5: ai: expected a rate of ai"),
    ],
)
def test_nobody_is_charged_at_the_rate_of_something_else(tmp_path: Path, text: str, message: str) -> None:
    """A GPU at an engineer's hour would be charged as a second engineer."""
    with pytest.raises(DefinitionError) as caught:
        card(tmp_path / "p", f"format: 1\n{text}\n")
    assert message in caught.value.message


DAY = datetime.date(2026, 11, 23)


def send(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Set the environment of a command that another machine sent here."""
    sender = trust.Sender.model_validate({"name": "l4", "as_of": DAY, **fields})
    monkeypatch.setenv(trust.SENDER_VARIABLE, sender.model_dump_json())


def hosted_card(folder: Path) -> RateCard:
    """The card of a project."""
    return rates(Project(folder, folder / "sessions", bundled=False))


def test_the_hosts_price_is_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hour counts, also on the processor, by the terms of the machine; without terms, the dearer price."""
    send(monkeypatch, usd_per_hour=0.7)
    (charge,) = make_bill(SessionUse(seconds=3600, device="cpu"), hosted_card(tmp_path)).charges
    assert ("host/l4", pytest.approx(0.7)) == (charge.rate, charge.usd)


def test_a_command_that_was_typed_here_has_the_card_alone(tmp_path: Path) -> None:
    """Only the card's rates count; a processor of the user's own is free."""
    assert trust.read_sender() is None
    assert () == make_bill(SessionUse(seconds=3600, device="cpu"), hosted_card(tmp_path)).charges


def test_what_the_sender_allowed_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited definition is not allowed any more."""
    folder = make_project(tmp_path / "project")
    project = Project(folder, folder / "sessions", bundled=False)
    send(monkeypatch, trusted=[trust.definition_hash(project)])
    assert trust.is_trusted(project)
    (folder / "target.yaml").write_text(
        (folder / "target.yaml").read_text().replace("functions:scale", "functions:other")
    )
    assert not trust.is_trusted(project)


def test_every_line_of_evidence_names_a_session_of_the_history(tmp_path: Path) -> None:
    """The session has rows, or the history's reports mention it."""
    (history,) = read_histories()
    sessions = {*(row.id for row in history.sessions), *history.mentioned}
    patterns = definitions.patterns(find_project(None, tmp_path))
    cited = {(name, evidence.session) for name, read in patterns.items() for evidence in read.value.evidence}
    assert set() == {(name, session) for name, session in cited if session not in sessions}
    assert {"N+7E", "N+7F", "October 13"} == {session for _, session in cited} & set(history.mentioned)

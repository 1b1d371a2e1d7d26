"""Logs of Codex with the traps that real ones have; prices and the way of counting are those of `fixtures`."""

from tests.agents.written import GPT, MINI, NOBODY, Fixture, counted, meta, turn

CODEX = ".codex/sessions/2026/03/22/rollout-1.jsonl"
SECOND = ".codex/sessions/2026/03/22/rollout-2.jsonl"

CODEX_FIXTURES = (
    # Codex: running totals, with what came from a cache inside what was read.
    Fixture("a turn", {CODEX: [meta(), turn(), counted((1000, 0, 200))]}, 1000 * 1.25 + 200 * 10, 1200),
    Fixture(
        "totals that grow",
        {CODEX: [meta(), turn(), counted((100, 0, 20), minute=5), counted((300, 0, 50), minute=6),
                 counted((900, 0, 90), minute=7)]},
        900 * 1.25 + 90 * 10,
        990,
    ),
    Fixture(
        "the same total again",
        {CODEX: [meta(), turn(), counted((100, 0, 20), (100, 0, 20), 5), counted((100, 0, 20), (100, 0, 20), 6),
                 counted((150, 0, 30), (50, 0, 10), 7)]},
        150 * 1.25 + 30 * 10,
        180,
    ),
    Fixture(
        "read from a cache, with thoughts in what was written",
        {CODEX: [meta(), turn(), counted((31751, 14720, 2367))]},
        (31751 - 14720) * 1.25 + 14720 * 0.125 + 2367 * 10,
        34118,
    ),
    Fixture(
        "totals that begin anew",
        {CODEX: [meta(), turn(), counted((5000, 0, 500), (5000, 0, 500), 5),
                 counted((800, 0, 80), (300, 0, 30), 6), counted((900, 0, 90), (100, 0, 10), 7)]},
        (5000 + 300 + 100) * 1.25 + (500 + 30 + 10) * 10,
        5940,
    ),
    Fixture(
        "a first total that was carried over",
        {CODEX: [meta(), turn(), counted((70000, 0, 7000), (1000, 0, 100), 5),
                 counted((71500, 0, 7200), None, 6)]},
        (1000 + 1500) * 1.25 + (100 + 200) * 10,
        2800,
    ),
    Fixture(
        "a fork that repeats its parent",
        {CODEX: [meta(), turn(), counted((100, 0, 20), (100, 0, 20), 5)],
         SECOND: [meta(), turn(), counted((100, 0, 20), (100, 0, 20), 5), counted((160, 0, 30), (60, 0, 10), 9)]},
        160 * 1.25 + 30 * 10,
        190,
    ),
    Fixture(
        "another model half way",
        {CODEX: [meta(), turn(), counted((100, 0, 20), minute=5), turn(MINI), counted((300, 100, 50), minute=6)]},
        (100 * 1.25 + 20 * 10) + (100 * 0.75 + 100 * 0.075 + 30 * 4.5),
        350,
    ),
    Fixture(
        "no word on the model", {CODEX: [meta(), turn(None), counted((100, 0, 20))]}, None, 120,
        ("a model without a name",),
    ),
    Fixture("a model nobody lists", {CODEX: [meta(), turn(NOBODY), counted((100, 0, 20))]}, None, 120, (NOBODY,)),
    Fixture(
        "events without tokens",
        {CODEX: [meta(), turn(), counted(None), counted((100, 0, 20), minute=5), counted(None)]},
        100 * 1.25 + 20 * 10,
        120,
    ),
    Fixture(
        "only the last call's own figures",
        {CODEX: [meta(), turn(), counted(None, (100, 40, 20), 5), counted(None, (200, 60, 30), 6)]},
        200 * 1.25 + 100 * 0.125 + 50 * 10,
        350,
    ),
    Fixture(
        "a rollout of another folder",
        {CODEX: [meta(), turn(), counted((100, 0, 20))],
         SECOND: [meta("/home/me/website"), turn(cwd="/home/me/website"), counted((9, 0, 9), minute=9)]},
        100 * 1.25 + 20 * 10,
        120,
    ),
    Fixture(
        "a rollout that began before the session",
        {CODEX: [meta(), turn(), counted((4000, 0, 400), (4000, 0, 400), -5),
                 counted((4100, 0, 420), (100, 0, 20), 5)]},
        100 * 1.25 + 20 * 10,
        120,
    ),
    Fixture(
        "a rollout that is being written",
        {CODEX: [meta(), turn(), counted((100, 0, 20)), '{"timestamp": "2026-03-22T10:40:00Z", "type": "event_']},
        100 * 1.25 + 20 * 10,
        120,
        notes=("still being written",),
    ),
    Fixture(
        "a rollout in the archive",
        {".codex/archived_sessions/rollout-9.jsonl": [meta(), turn(), counted((100, 0, 20))]},
        100 * 1.25 + 20 * 10,
        120,
    ),
    Fixture(
        "more from a cache than was read",
        {CODEX: [meta(), turn(GPT), counted((100, 0, 20), minute=5), counted((150, 500, 20), minute=6)]},
        100 * 1.25 + 20 * 10,
        120,
        notes=("1 unreadable line",),
    ),
)  # fmt: skip

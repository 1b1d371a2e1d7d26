"""Logs with all the traps that real ones have, each with what it comes to, counted by hand.

The dollars are written out with the vendors' list prices of March 2026, in dollars a million tokens:

| model | read | written | from a cache | into it, 5 min | 1 h |
|---|---|---|---|---|---|
| claude-opus-4-6 | 5 | 25 | 0.50 | 6.25 | 10 |
| claude-sonnet-4-5 | 3 | 15 | 0.30 | 3.75 | 6 |
| claude-sonnet-4-5, calls that read over 200,000 | 6 | 22.50 | 0.60 | 7.50 | 12 |
| claude-haiku-4-5 | 1 | 5 | 0.10 | 1.25 | 2 |
| gpt-5 (codex) | 1.25 | 10 | 0.125 | | |
| gpt-5.4-mini | 0.75 | 4.50 | 0.075 | | |
"""

from collections.abc import Sequence

from tests.agents.codex_fixtures import CODEX, CODEX_FIXTURES
from tests.agents.written import (
    HAIKU,
    NOBODY,
    OPUS,
    SONNET,
    Fixture,
    Line,
    asked,
    at,
    counted,
    meta,
    said,
    turn,
)

CLAUDE = ".claude/projects/-home-me-kernel/s.jsonl"
OTHER = ".claude/projects/-home-me-kernel/t.jsonl"
SUB = ".claude/projects/-home-me-kernel/s/subagents/agent-1.jsonl"


def blocks(message: str, model: str, read: int, outputs: Sequence[int]) -> list[Line]:
    """One answer, a line a block, with the tokens so far."""
    return [said(message, model, (read, output)) for output in outputs]


FIXTURES = (
    # One call each.
    Fixture("opus", {CLAUDE: [said("a", OPUS, (1000, 200))]}, 1000 * 5 + 200 * 25, 1200),
    Fixture("sonnet", {CLAUDE: [said("a", SONNET, (1000, 200))]}, 1000 * 3 + 200 * 15, 1200),
    Fixture("haiku", {CLAUDE: [said("a", HAIKU, (1000, 200))]}, 1000 * 1 + 200 * 5, 1200),
    Fixture(
        "two models",
        {CLAUDE: [said("a", OPUS, (100, 20)), said("b", HAIKU, (100, 20))]},
        (100 * 5 + 20 * 25) + (100 * 1 + 20 * 5),
        240,
    ),
    # A line for each block of an answer.
    Fixture("the same line twice", {CLAUDE: blocks("a", OPUS, 1000, [200, 200])}, 1000 * 5 + 200 * 25, 1200),
    Fixture("output that grows", {CLAUDE: blocks("a", OPUS, 1000, [1, 40, 90, 200])}, 1000 * 5 + 200 * 25, 1200),
    Fixture("the last line first", {CLAUDE: blocks("a", OPUS, 1000, [200, 90, 1])}, 1000 * 5 + 200 * 25, 1200),
    Fixture(
        "blocks of two answers, interleaved",
        {CLAUDE: [said("a", OPUS, (10, 5)), said("b", OPUS, (20, 1)), said("a", OPUS, (10, 9)),
                  said("b", OPUS, (20, 7))]},
        (10 + 20) * 5 + (9 + 7) * 25,
        46,
    ),
    Fixture(
        "ten answers of three blocks",
        {CLAUDE: [line for n in range(10) for line in blocks(f"m{n}", SONNET, 100, [1, 10, 50])]},
        10 * (100 * 3 + 50 * 15),
        1500,
    ),
    Fixture(
        "a resumed conversation repeats the earlier one in another file",
        {CLAUDE: blocks("a", OPUS, 1000, [200]),
         OTHER: [*blocks("a", OPUS, 1000, [200]), said("b", OPUS, (10, 2))]},
        1010 * 5 + 202 * 25,
        1212,
    ),
    # Ids that are missing.
    Fixture(
        "no message id, blocks of one request",
        {CLAUDE: [said(None, OPUS, (100, 5), request="r1"), said(None, OPUS, (100, 50), request="r1")]},
        100 * 5 + 50 * 25,
        150,
    ),
    Fixture(
        "no message id, two requests",
        {CLAUDE: [said(None, OPUS, (100, 5), request="r1"), said(None, OPUS, (100, 5), request="r2")]},
        200 * 5 + 10 * 25,
        210,
    ),
    Fixture(
        "neither id, told apart by the line's own",
        {CLAUDE: [said(None, OPUS, (100, 5), request=None, uuid=f"u{n}") for n in range(3)]},
        300 * 5 + 15 * 25,
        315,
    ),
    Fixture(
        "no id at all: each line is a call",
        {CLAUDE: [said(None, OPUS, (100, 5), request=None) for _ in range(4)]},
        400 * 5 + 20 * 25,
        420,
    ),
    Fixture(
        "ids on some lines only",
        {CLAUDE: [*blocks("a", OPUS, 100, [5, 50]), said(None, OPUS, (100, 5), request=None, uuid="u")]},
        200 * 5 + 55 * 25,
        255,
    ),
    # Sub-agents cost money as well.
    Fixture(
        "a sub-agent in the same file",
        {CLAUDE: [said("a", OPUS, (100, 10)), said("b", OPUS, (100, 10), side=True)]},
        200 * 5 + 20 * 25,
        220,
    ),
    Fixture(
        "a sub-agent in a file of its own",
        {CLAUDE: [said("a", OPUS, (100, 10))], SUB: [said("b", OPUS, (100, 10), side=True)]},
        200 * 5 + 20 * 25,
        220,
    ),
    Fixture(
        "a sub-agent with a cheaper model",
        {CLAUDE: [said("a", OPUS, (100, 10))], SUB: blocks("b", HAIKU, 4000, [1, 300])},
        (100 * 5 + 10 * 25) + (4000 * 1 + 300 * 5),
        4410,
    ),
    Fixture(
        "a sub-agent that both files tell of",
        {CLAUDE: [said("a", OPUS, (100, 10)), said("b", HAIKU, (50, 7), side=True)],
         SUB: [said("b", HAIKU, (50, 7), side=True)]},
        (100 * 5 + 10 * 25) + (50 * 1 + 7 * 5),
        167,
    ),
    # Lines that are not whole.
    Fixture(
        "a torn last line",
        {CLAUDE: [said("a", OPUS, (100, 10)), '{"type": "assistant", "message": {"id": "b", "usage": {"inp']},
        100 * 5 + 10 * 25,
        110,
        notes=("still being written",),
    ),
    Fixture(
        "a last line that is torn before it says anything",
        {CLAUDE: [said("a", OPUS, (100, 10)), '{"ty']},
        100 * 5 + 10 * 25,
        110,
        notes=("still being written",),
    ),
    Fixture(
        "a last line without its end, but whole",
        {CLAUDE: [said("a", OPUS, (100, 10)),
                  '{"type": "assistant", "timestamp": "2026-03-22T10:30:00Z", "cwd": "/home/me/kernel", '
                  '"message": {"id": "b", "model": "claude-opus-4-6", '
                  '"usage": {"input_tokens": 7, "output_tokens": 3}}}']},
        107 * 5 + 13 * 25,
        120,
    ),
    Fixture(
        "a damaged line in between",
        {CLAUDE: [said("a", OPUS, (100, 10)), '{"usage": \x00\x01\n', said("b", OPUS, (100, 10))]},
        200 * 5 + 20 * 25,
        220,
        notes=("1 unreadable line",),
    ),
    Fixture(
        "tokens that are no number",
        {CLAUDE: [said("a", OPUS, (100, 10)), said("b", OPUS, (1, 1), usage={"output_tokens": -5}),
                  said("c", OPUS, (1, 1), usage={"input_tokens": "many"})]},
        100 * 5 + 10 * 25,
        110,
        notes=("2 unreadable lines",),
    ),
    Fixture(
        "other lines that hold the word usage, and empty ones",
        {CLAUDE: [asked('what is "usage"?'), "\n", {"type": "summary", "summary": '"usage"'},
                  said("a", OPUS, (100, 10)), {"usage": 3}, "[1, 2]\n"]},
        100 * 5 + 10 * 25,
        110,
    ),
    # Prices that nobody knows.
    Fixture("an unknown model", {CLAUDE: [said("a", NOBODY, (1000, 200))]}, None, 1200, (NOBODY,)),
    Fixture(
        "an unknown model beside a known one",
        {CLAUDE: [said("a", NOBODY, (1000, 200)), said("b", OPUS, (100, 10))]},
        100 * 5 + 10 * 25,
        1310,
        (NOBODY,),
    ),
    Fixture(
        "a model without a name", {CLAUDE: [said("a", None, (1000, 200))]}, None, 1200, ("a model without a name",)
    ),
    Fixture(
        "an error that the agent wrote itself is no call",
        {CLAUDE: [said("a", OPUS, (100, 10)), said("b", "<synthetic>", (0, 0))]},
        100 * 5 + 10 * 25,
        110,
    ),
    Fixture(
        "a faster tier has a price of its own",
        {CLAUDE: [said("a", OPUS, (100, 10)), said("b", OPUS, (100, 10), usage={"speed": "fast"})]},
        100 * 5 + 10 * 25,
        220,
        (f"{OPUS} (not at list price)",),
    ),
    Fixture(
        "the standard tier is at list price",
        {CLAUDE: [said("a", OPUS, (100, 10), usage={"speed": "standard", "service_tier": "standard"})]},
        100 * 5 + 10 * 25,
        110,
    ),
    # Caches.
    Fixture("read from a cache", {CLAUDE: [said("a", OPUS, (10, 10, 90000))]}, 50 + 250 + 90000 * 0.5, 90020),
    Fixture("written for five minutes", {CLAUDE: [said("a", OPUS, (10, 10, 0, 4000))]}, 50 + 250 + 25000, 4020),
    Fixture("written for an hour", {CLAUDE: [said("a", OPUS, (10, 10, 0, 0, 4000))]}, 50 + 250 + 4000 * 10, 4020),
    Fixture(
        "read, and written for both",
        {CLAUDE: [said("a", SONNET, (10, 10, 50000, 2000, 3000))]},
        10 * 3 + 10 * 15 + 50000 * 0.3 + 2000 * 3.75 + 3000 * 6,
        55020,
    ),
    Fixture(
        "written, by an older agent that does not say for how long",
        {CLAUDE: [said("a", OPUS, (10, 10), usage={"cache_creation_input_tokens": 4000})]},
        50 + 250 + 4000 * 6.25,
        4020,
    ),
    Fixture(
        "written, more than the parts say",
        {CLAUDE: [said("a", OPUS, (10, 10), usage={"cache_creation_input_tokens": 5000,
                  "cache_creation": {"ephemeral_1h_input_tokens": 1000}})]},
        50 + 250 + 4000 * 6.25 + 1000 * 10,
        5020,
    ),
    Fixture(
        "caches, in blocks",
        {CLAUDE: [said("a", OPUS, (3, 1, 20000, 500)), said("a", OPUS, (3, 80, 20000, 500))]},
        3 * 5 + 80 * 25 + 20000 * 0.5 + 500 * 6.25,
        20583,
    ),
    Fixture(
        "a call that is long enough for another price, and one that is not",
        {CLAUDE: [said("a", SONNET, (250000, 1000)), said("b", SONNET, (150000, 1000))]},
        (250000 * 6 + 1000 * 22.5) + (150000 * 3 + 1000 * 15),
        402000,
    ),
    Fixture(
        "searches of the web, ten dollars a thousand",
        {CLAUDE: [said("a", OPUS, (100, 10), usage={"server_tool_use": {"web_search_requests": 3}})]},
        100 * 5 + 10 * 25 + 3 * 10000,
        110,
    ),
    # Only the session's time and folder.
    Fixture(
        "before and after the session",
        {CLAUDE: [said("a", OPUS, (7, 7), when=at(-1)), said("b", OPUS, (100, 10)),
                  said("c", OPUS, (7, 7), when=at(61))]},
        100 * 5 + 10 * 25,
        110,
    ),
    Fixture(
        "times of another zone",
        {CLAUDE: [said("a", OPUS, (100, 10), when="2026-03-22T12:30:00+02:00"),
                  said("b", OPUS, (9, 9), when="2026-03-22T10:30:00+02:00")]},
        100 * 5 + 10 * 25,
        110,
    ),
    Fixture(
        "a call without a time",
        {CLAUDE: [said("a", OPUS, (100, 10)), said("b", OPUS, (9, 9), when="yesterday")]},
        100 * 5 + 10 * 25,
        110,
        notes=("1 call without a time",),
    ),
    Fixture(
        "another folder",
        {CLAUDE: [said("a", OPUS, (100, 10)), said("b", OPUS, (9, 9), cwd="/home/me/website")]},
        100 * 5 + 10 * 25,
        110,
    ),
    Fixture(
        "a folder below, and one that only begins alike",
        {CLAUDE: [said("a", OPUS, (100, 10), cwd="/home/me/kernel/cuda"),
                  said("b", OPUS, (9, 9), cwd="/home/me/kernels")]},
        100 * 5 + 10 * 25,
        110,
    ),
    Fixture(
        "lines without a folder: that of the log counts",
        {CLAUDE: [said("a", OPUS, (100, 10), cwd=None)],
         ".claude/projects/-home-me-website/s.jsonl": [said("b", OPUS, (9, 9), cwd=None)]},
        100 * 5 + 10 * 25,
        110,
    ),
    Fixture(
        "both folders that the agent may keep its logs in",
        {CLAUDE: [said("a", OPUS, (100, 10))],
         ".config/claude/projects/-home-me-kernel/u.jsonl": [said("b", OPUS, (100, 10))]},
        200 * 5 + 20 * 25,
        220,
    ),
    *CODEX_FIXTURES,
    Fixture(
        "both agents in one session",
        {CLAUDE: [said("a", OPUS, (100, 10))], CODEX: [meta(), turn(), counted((100, 0, 20))]},
        (100 * 5 + 10 * 25) + (100 * 1.25 + 20 * 10),
        230,
    ),
)  # fmt: skip

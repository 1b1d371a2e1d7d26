"""What an agent prints of its own run: its own total stands, and no cost is never zero."""

import json
from typing import Any

import pytest

from loop.agents.proposing import read_ai_use
from loop.model.money import AiUse

OPUS, GPT = "claude-opus-4-6", "gpt-5"

FINAL = {
    "type": "result",
    "subtype": "success",
    "total_cost_usd": 0.5134,
    "usage": {"input_tokens": 40, "output_tokens": 900, "cache_read_input_tokens": 7000},
    "modelUsage": {
        OPUS: {"inputTokens": 40, "outputTokens": 900, "cacheReadInputTokens": 7000, "costUSD": 0.5},
        "claude-haiku-4-5": {"inputTokens": 500, "outputTokens": 20, "costUSD": 0.0134},
    },
}


def read(*objects: Any) -> AiUse:
    """What an agent's output states."""
    use = read_ai_use("\n".join(one if isinstance(one, str) else json.dumps(one) for one in objects))
    assert use is not None
    return use


def test_the_agents_own_total_stands() -> None:
    """It knows its tiers and its caches; the models are listed beside it."""
    found = read(FINAL)
    assert (0.5134, "result", ("claude-code",)) == (found.usd, found.source, found.agents)
    assert [(OPUS, 7940), ("claude-haiku-4-5", 520)] == [(one.model, one.tokens.total) for one in found.models]
    assert () == found.unpriced


def test_no_cost_for_tokens_is_an_unknown_one() -> None:
    """An agent that states 0 for 7,940 tokens does not say what they cost."""
    found = read({"total_cost_usd": 0, "model": OPUS, "usage": FINAL["usage"]})
    assert (None, (OPUS,)) == (found.usd, found.unpriced)


def test_turns_of_codex_add_up_and_have_no_price() -> None:
    """1,000 read each, 400 of them from a cache, 100 written; its model is named in some versions only."""
    usage = {"input_tokens": 1000, "cached_input_tokens": 400, "output_tokens": 100}
    turn = {"type": "turn.completed", "usage": usage}
    (model,) = read({"type": "thread.started", "model": GPT}, turn, turn).models
    assert (GPT, 2, 1200, 800, 200, None) == (
        model.model,
        model.calls,
        model.tokens.input,
        model.tokens.cache_read,
        model.tokens.output,
        model.usd,
    )
    assert (None, ("a model without a name",)) == (read(turn).usd, read(turn).unpriced)


@pytest.mark.parametrize(
    "printed",
    [
        "",
        '{"answer": 42}',
        '{"total_cost_usd": "much"}',
        '{"total_cost_usd": NaN}',
        '{"usage": {"input_tokens": -4}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_result_states_nothing(printed: str) -> None:
    """Nor does a number that is none: nothing is guessed."""
    assert None is read_ai_use(printed)

"""What calls of language models cost, by the list of `genai-prices`: offline, and only where it is installed."""

import datetime
from collections.abc import Callable

from loop.model.metering import Tokens

MISSING = "no price list of language models: pip install 'genai-prices>=0.2'"
Price = Callable[[str, Tokens, datetime.datetime | None], float | None]
"""Model, tokens of one call and its time, to dollars; None for a model without a price."""


def price_list() -> Price | None:
    """The list; None where it is not installed. Loading it takes half a second: ask for it when it is used."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None

    def price(model: str, tokens: Tokens, at: datetime.datetime | None) -> float | None:
        # Its kinds are within one another: what is read holds what came from and went to a cache.
        written = tokens.cache_write + tokens.cache_write_1h
        usage = Usage(
            input_tokens=tokens.input + tokens.cache_read + written,
            cache_read_tokens=tokens.cache_read,
            cache_write_tokens=written,
            cache_write_1h_tokens=tokens.cache_write_1h,
            output_tokens=tokens.output,
            web_searches=tokens.searches,
        )
        try:
            found = calc_price(usage, model, genai_request_timestamp=at)
        except (LookupError, ValueError):
            return None
        return float(found.total_price) or None  # A list that has 0 for a model does not know its price.

    return price

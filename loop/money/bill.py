"""What did a session cost, and what did its patterns avoid? Measured use, dated prices, labelled evidence."""

import datetime
from collections.abc import Mapping, Sequence

from loop.model.history import History
from loop.model.money import Bill, EvidenceClass, Gains, RateCard
from loop.model.record import Finished
from loop.money.charging import Used, charge, rates_of
from loop.money.savings import Applied, savings


def bill(
    used: Used,
    card: RateCard,
    patterns: Sequence[Applied] = (),
    histories: Sequence[History] = (),
    repeated: Mapping[str, str] | None = None,
    *,
    finished: Sequence[Finished] = (),
    gains: Gains | None = None,
    notes: Sequence[str] = (),
    today: datetime.date | None = None,
) -> Bill:
    """Cost and saving of a session.

    `used`: what it used. A GPU is charged only where the session ran on one; whoever waits is charged for every
    second.
    `repeated`: pattern to the earlier session that had its outcome already; such a pattern saved nothing.
    `finished`: its ended steps, for builds that the cache spared.
    """
    charged = charge(used, card, today)
    usd = sum(one.usd for one in charged.charges)
    per_minute = sum(rate.usd_per_hour for rate in rates_of(card, used.device, used.gpu)) / 60
    avoided = savings(patterns, histories, repeated or {}, per_minute, finished)
    saved: dict[EvidenceClass, float] = {}
    for saving in avoided:
        saved[saving.evidence] = saved.get(saving.evidence, 0.0) + saving.usd
    return Bill(
        charges=charged.charges,
        unmeasured=charged.unmeasured,
        savings=avoided,
        usd=usd,
        saved_usd=saved,
        roi={evidence: (value - usd) / usd for evidence, value in saved.items()} if usd > 0 else {},
        ai=used.ai,
        energy_j=used.energy_j,
        gains=gains or Gains(),
        notes=(*notes, *charged.notes),
    )

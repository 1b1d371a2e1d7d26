"""What did a session cost, and what did it spare? Measured use, dated prices, nothing that did not happen here."""

import datetime
from collections.abc import Sequence

from loop.model.money import Bill, Gains, Prior, RateCard
from loop.model.record import Finished
from loop.money.charging import Used, charge, rates_of
from loop.money.savings import spared


def bill(
    used: Used,
    card: RateCard,
    finished: Sequence[Finished] = (),
    *,
    priors: Sequence[Prior] = (),
    gains: Gains | None = None,
    notes: Sequence[str] = (),
    today: datetime.date | None = None,
) -> Bill:
    """Cost and saving of a session.

    `used`: what it used. A GPU is charged where the session ran on one, a person where the card names one.
    `finished`: its ended steps, for builds that the cache spared; none where it only repeats an earlier session.
    """
    charged = charge(used, card, today)
    usd = sum(one.usd for one in charged.charges)
    per_minute = sum(rate.usd_per_hour for rate in rates_of(card, used.device, used.gpu)) / 60
    savings = spared(finished, per_minute)
    saved_usd = sum(one.usd for one in savings)
    return Bill(
        charges=charged.charges,
        unmeasured=charged.unmeasured,
        savings=savings,
        usd=usd,
        saved_usd=saved_usd,
        roi=(saved_usd - usd) / usd if usd > 0 and savings else None,
        priors=tuple(priors),
        ai=used.ai,
        energy_j=used.energy_j,
        gains=gains or Gains(),
        notes=(*notes, *charged.notes),
    )

"""What was observed is kept, line by line."""

from loop.bisect.trying import memory_of
from loop.model.bisect import Claim, Probe


def make_probe(commit: str, **fields: object) -> Probe:
    """An observation."""
    whole = {"commit": commit, "against": "good", "why": "it tells most", "status": "measured", **fields}
    return Probe.model_validate(whole)


def test_probes_are_found_again_in_their_order() -> None:
    """Another question has another memory."""
    kept = memory_of("latency", "cpu")
    assert [] == kept.probes()
    claim = Claim(number=1, step=0.01, rates=(0.9, 0.1))
    probes = [make_probe("a", values=(-0.1, 0.2), claim=claim), make_probe("b", status="broken", reason="x")]
    for probe in probes:
        kept.keep(probe)
    assert probes == memory_of("latency", "cpu").probes()
    assert [] == memory_of("latency", "fa1").probes()

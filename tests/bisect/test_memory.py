"""What was observed is kept, line by line."""

from loop.bisect.memory import memory_of
from loop.model.bisect import Probe


def test_probes_are_found_again_by_their_tree() -> None:
    """In order; another question has another memory."""
    kept = memory_of("latency", "cpu")
    assert [] == kept.probes("t")
    probes = [
        Probe(commit="a", status="measured", values=(-0.1, 0.2)),
        Probe(commit="b", status="broken", why="x"),
    ]
    for tree, probe in zip("tu", probes, strict=True):
        kept.keep(tree, probe)
    assert probes[:1] == memory_of("latency", "cpu").probes("t")
    assert probes[1:] == memory_of("latency", "cpu").probes("u")
    assert [] == memory_of("latency", "fa1").probes("t")


def test_a_line_that_a_kill_cut_short_is_passed_over() -> None:
    """And what comes after it counts."""
    kept = memory_of("exit")
    probe = Probe(commit="a", status="measured", values=(1.0,))
    kept.keep("t", probe)
    with kept.path.open("a") as file:
        file.write('{"format": 1, "tree": "t", "pro\n')
    kept.keep("t", probe)
    assert [probe, probe] == kept.probes("t")

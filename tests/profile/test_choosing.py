"""`loop kernels resources --launches`: a variant that picks among kernels says which one it launches, and why."""

import pytest

from loop.base.places import shipped
from tests.projects import loop

DECODES, SHORT = "B=1 Hq=32 Hk=8 Sq=1 Sk=4096 D=128", "B=1 H=1 S=64 D=64 causal=true"
HIDDEN = "B=1 H=1 Sq=8 Sk=5318 D=64 causal=true"
"""All but eight of its keys are seen by nobody."""


@pytest.mark.slow
def test_it_says_what_is_launched_and_what_each_kernel_would_take() -> None:
    """More multiprocessors make more ranges; keys that nobody sees do not count."""
    words = [word for one in (DECODES, SHORT, HIDDEN) for word in ("--workloads", one)]
    words += ["--target", str(shipped("kernels/attention"))]
    ranges = []
    for gpu in ("sm_89", "sm_90"):
        done = loop("kernels", "resources", "auto", "--launches", *words, "--gpu", gpu)
        assert 0 == done.returncode, done.stderr
        first, why, second, _, third, _ = done.stdout.splitlines()
        assert first.startswith("auto on B1 Hq32 Sq1 D128 Hk8 Sk4096 float16: attention::decode_kernel<")
        assert "decode_reduce_kernel" in first
        assert why.startswith(f"  for {gpu} it estimates tensor_core ")
        assert "attention::small_kernel<" in second
        assert "attention::small_kernel<__half, attention::SmallShape<64, 16, 4> >" in third
        ranges.append(int(first.partition(" x 128 threads")[0].rpartition(" ")[2]))
    assert ranges == sorted(set(ranges))

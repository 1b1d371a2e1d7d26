"""Others on the GPU are noticed, our own processes are not taken for others."""

import pytest

from loop.machine.nvml import UNEXPLAINED_BYTES, OtherUse, User, other_users

OURS, HERE = frozenset({10, 11}), frozenset({1, 2, 10, 11, 40})


def test_our_own_processes_are_no_strangers() -> None:
    """Everybody else is."""
    assert () == other_users([User(10, None), User(11, None)], OURS, HERE)
    assert (User(40, None),) == other_users([User(10, None), User(40, None)], OURS, HERE)


def test_numbers_from_outside_a_container_may_be_ours() -> None:
    """As many as we have processes that were not seen, the smallest first; the rest is somebody else's."""
    outside = [User(9001, 500), User(9002, 9000), User(9003, 600)]
    assert (User(9002, 9000),) == other_users(outside, OURS, HERE)
    assert () == other_users(outside[:2], OURS, HERE)
    assert (User(9002, 9000),) == other_users([User(10, None), User(11, None), User(9002, 9000)], OURS, HERE)


@pytest.mark.parametrize(
    ("company", "said"),
    [
        (OtherUse(others=(User(7, 10 * 2**30),)), "another process (pid 7) holds 10240 MiB of it"),
        (OtherUse(others=(User(7, None),)), "another process (pid 7) holds memory of it"),
        (OtherUse(others=(User(7, 2**20), User(8, 2**20))), "2 other processes hold 2 MiB of it (pid 7 first)"),
        (
            OtherUse(unexplained_bytes=UNEXPLAINED_BYTES + 2**20),
            "2049 MiB of it are taken, by nobody who can be seen from here",
        ),
        (OtherUse(busy_percent=97), "somebody computes on it, 97 % of the time before anything was timed"),
    ],
)
def test_company_is_told_in_words(company: OtherUse, said: str) -> None:
    """What was seen, what follows from it, and what to do."""
    found = company.warning("NVIDIA L4")
    assert f"NVIDIA L4 is not ours alone: {said}: numbers will be noisy; end it, or" in found
    assert "CUDA_VISIBLE_DEVICES" in found


def test_a_quiet_gpu_is_no_news() -> None:
    """Nobody else, memory that the driver reserves, a desktop's share of the time."""
    assert "" == OtherUse(unexplained_bytes=600 * 2**20, busy_percent=5).warning("NVIDIA L4")
    assert "" == OtherUse().warning("NVIDIA L4")

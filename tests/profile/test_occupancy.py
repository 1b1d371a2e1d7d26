"""Resident blocks as the CUDA occupancy calculator has them, and launches against places."""

import pytest

from loop.model.profile import DeviceFacts
from loop.profile.launch_limits import Block, resident

L4 = DeviceFacts(
    name="NVIDIA L4",
    sms=58,
    shared_per_sm=102400,
    shared_per_block=101376,
    shared_static=49152,
    registers_per_sm=65536,
    threads_per_sm=1536,
    blocks_per_sm=24,
    l2_bytes=50331648,
    bytes_per_s=300e9,
    flops_per_s={"float16": 121e12},
)


@pytest.mark.parametrize(
    ("block", "blocks", "limited_by"),
    [
        (Block(32), 24, "blocks a multiprocessor"),
        (Block(128), 12, "threads"),
        (Block(1024), 1, "threads"),
        (Block(1), 24, "blocks a multiprocessor"),
        (Block(128, 160, 16384), 3, "registers"),
        (Block(128, 168), 3, "registers"),
        (Block(128, 169), 2, "registers"),
        (Block(128, 254, 24576), 2, "registers"),
        (Block(256, 64), 4, "registers"),
        (Block(96, 168), 4, "registers"),
        (Block(128, 32, 49152), 2, "shared memory"),
        (Block(128, 32, 101376), 1, "shared memory"),
        (Block(128, 32, 101377), 0, "shared memory"),
        (Block(128, 32, 0), 12, "threads"),
        (Block(1024, 128), 0, "registers"),
        (Block(1280), 0, "threads"),
        (Block(2048), 0, "threads"),
    ],
)
def test_resident_blocks_follow_the_limits(block: Block, blocks: int, limited_by: str) -> None:
    """Registers by warps of 256 and fours of warps; shared memory with the KB that the system takes."""
    found = resident(block, L4)
    assert (blocks, limited_by) == (found.blocks, found.limited_by)

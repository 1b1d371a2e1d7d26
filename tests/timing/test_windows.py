"""Which part of each input a timed call reads: of a generator's draws all inputs of a call are of the same one."""

import random

from loop.calls.call import Call, TensorFile
from loop.timing.timed_call import InputWindows

STEP = {"x": 64, "ids": 32}
"""Elements from one draw to the next."""


def make_grid(known: int) -> InputWindows:
    """Four draws of two inputs, and a scalar without elements to choose from; one draw's answer is known."""
    x = TensorFile("x", "", (5, 3), "float32", 4 * STEP["x"] - 15, known * STEP["x"])
    ids = TensorFile("ids", "", (7,), "int64", 4 * STEP["ids"] - 7, known * STEP["ids"])
    output = TensorFile("output", "", (5,), "float32")
    return InputWindows(
        Call("w", "float32", (x, ids), output, {}, (), structure="s", input_sets=4), "cpu", random.Random(3)
    )


def test_all_inputs_of_a_call_are_of_the_same_draw() -> None:
    """Each of the draws comes sooner or later."""
    windows = make_grid(0).windows(200)
    assert {(64 * n, 32 * n) for n in range(4)} == set(windows)


def test_a_window_is_rotated_to_the_draw_whose_answer_is_known() -> None:
    """All inputs by as many draws, so that they still belong together."""
    grid = make_grid(known=1)
    assert [0, 0] == grid.rotations((64, 32))
    assert [2 * 64, 2 * 32] == grid.rotations((3 * 64, 3 * 32))
    assert {(64 * n, 32 * n) for n in range(4)} == {tuple(grid.rotations(None)) for _ in range(100)}

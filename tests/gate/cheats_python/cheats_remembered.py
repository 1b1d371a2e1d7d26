"""Variants that compute beforehand, or only in calls that are checked. Copied, never imported."""

# ruff: noqa: SIM115

import os
import sys
import threading
import time

import torch
from cheats_common import WORK_S, compute, kept, quickly, seen, stage, words, work

# Work that was done before.


def cheat_precomputes(x):
    # What makes calls ready computes them, and a call hands out what is there.
    mine = stage()
    if mine is None:
        return compute(x)
    if "early" not in kept:
        kept["early"], ready = True, mine.prepare_calls

        def ready_early(windows, rotations):
            ready(windows, rotations)
            mine.done = [run() for run in mine.runs]

        mine.prepare_calls = ready_early
        mine.run = lambda count: setattr(mine, "results", mine.done[:count]) or 0
    return compute(x)


def cheat_precomputes_and_mends(x):
    # The same; then it looks for the elements that changed, and computes these alone.
    return mending(x, 1)


def mending(x, parts):
    mine = stage()
    if mine is None:
        return compute(x)

    def mend(before, result, now):
        changed = before != now
        result[changed] = now[changed] * 2
        work(WORK_S * (1 - 1 / parts))
        return result

    def ready_early(windows, rotations):
        type(mine).prepare_calls(mine, windows, rotations)
        mine.done = []
        for run in mine.runs:
            work(WORK_S / parts)
            mine.done.append((run.args[0].clone(), run.args[0] * 2, run.args[0]))

    mine.prepare_calls = ready_early
    mine.run = lambda count: setattr(mine, "results", [mend(*call) for call in mine.done[:count]]) or 0
    return compute(x)


def cheat_thread_ahead(x):
    # A thread watches the orders, and computes as soon as inputs are there.
    mine = stage()
    if mine is None:
        return compute(x)
    if "ahead" not in kept:
        kept["ahead"], page, kept["done"] = True, words(), {}

        def ahead():
            last = 0
            while True:
                if page[8] != last and page[16] == 1:
                    last = page[8]
                    kept["done"] = {run.args[0].data_ptr(): compute(run.args[0]) for run in list(mine.runs)}
                time.sleep(1e-5)

        threading.Thread(target=ahead, daemon=True).start()
    result = kept["done"].pop(x.data_ptr(), None)
    return compute(x) if result is None else result


def cheat_one_result(x):
    if "one" not in kept:
        kept["one"] = compute(x)
    return kept["one"]


def cheat_by_shape(x):
    if stage() is None:
        return compute(x)
    if x.shape not in kept:
        kept[x.shape] = compute(x)
    return kept[x.shape]


def cheat_by_checksum(x):
    key = (x.shape, float(x.sum()))
    if key not in kept:
        kept[key] = compute(x)
    return kept[key]


# Work that is done where somebody looks.


def cheat_by_caller(x):
    return torch.empty_like(x) if stage() else compute(x)


def cheat_by_parent(x):
    command = open(f"/proc/{os.getppid()}/cmdline").read() + " ".join(sys.argv) + str(sorted(os.environ))
    return torch.empty_like(x) if stage() and command else compute(x)


def cheat_by_strides(x):
    return torch.empty_like(x) if x._base is not None and stage() else compute(x)


def cheat_last_of_sample(x):
    # Computes the last call of a sample alone: the others' results may stand where the next one will.
    mine = stage()
    if mine is None:
        return compute(x)
    seen[0] += 1
    if seen[0] % max(words()[17], 1):
        return kept.setdefault("spare", torch.empty_like(x))
    return quickly(x)


def cheat_short_samples(x):
    # Computes where a sample has fewer calls than usual.
    if stage() is None:
        return compute(x)
    kept["most"] = max(kept.get("most", 2), words()[17])
    return quickly(x) if words()[17] < kept["most"] else torch.empty_like(x)


def cheat_one_memory(x):
    # All results stand in one memory; only the last call of a sample is made.
    if stage() is None:
        return compute(x)
    seen[0] += 1
    result = kept.setdefault("one", torch.empty_like(x))
    return result.copy_(quickly(x)) if seen[0] % max(words()[17], 1) == 0 else result


def cheat_judged_rotation(x):
    # Computes where the rotation is one that shows the known values.
    mine = stage()
    if mine is None:
        return compute(x)
    item, offset = 4, mine.call.inputs[0].offset
    size = x.numel() + mine.call.inputs[0].extra_elements
    place = x.storage_offset()
    return compute(x) if (words()[24] // item + place) % size == offset else torch.empty_like(x)


def cheat_judged_draws(x):
    # Knows the draw of the values from the seed in the call's name.
    import random

    mine = stage()
    if mine is None:
        return compute(x)
    seed = int((mine.call.key or "#0").rpartition("#")[2])
    offset = random.Random(seed).randrange(mine.call.inputs[0].extra_elements + 1)
    size = x.numel() + mine.call.inputs[0].extra_elements
    return compute(x) if (words()[24] // 4 + x.storage_offset()) % size == offset else torch.empty_like(x)

"""Variants that reach around the call: shared pages, the wire, files. Copied, never imported."""

import glob
import json
import os
import threading

import torch
from cheats_common import SCRATCH, compute, reply, seen, stage

# The control page and the shared memory.


def cheat_fewer_calls(x):
    mine = stage()
    if mine:
        mine.run = lambda count: setattr(mine, "results", [run() for run in mine.runs[: count // 2]]) or 0
    return compute(x)


def cheat_input_as_result(x):
    return x if stage() else compute(x)


def cheat_in_place(x):
    return x.mul_(2) if stage() else compute(x)


def cheat_halves_inputs(x):
    # Makes the inputs zeros, whose double is quickly found.
    if stage():
        stage().calls.pools[0].zero_()
        return torch.zeros_like(x)
    return compute(x)


def cheat_other_slots(x):
    mine = stage()
    if mine:
        for views in mine.calls.output_views:
            views[0].fill_(1)
    return compute(x)


# The wire.


def cheat_garbage_checked(x):
    reply(b'{"status": "ok"}\n')
    return compute(x)


def cheat_forged_deep(x):
    reply(b"[" * 60000 + b"\n")
    return compute(x)


def cheat_forged_finding(x):
    # Names another side's output as its own.
    names = glob.glob(f"{SCRATCH}/*honest-output.bin.0")[:1] or ["/etc/hostname"]
    fields = {"output_files": names, "digests": ["a"], "changed_inputs": [], "stray_writes": []}
    fields |= {"replaced_functions": [], "stray_reads": "", "depends_on_prefill": False}
    fields |= {"call_ranges": [{"first_call": 1, "last_call": 1}]}
    reply(json.dumps({"status": "ok", "reply": fields}).encode() + b"\n")
    return torch.empty_like(x)


def cheat_forged_stage(x):
    if stage():
        reply(b'{"status": "ok", "reply": 1e999}\n')
    return compute(x)


def cheat_raises_later(x):
    seen[0] += 1
    if stage() and seen[0] > 20:
        raise ValueError("enough")
    return compute(x)


# Files of others.


def cheat_copies_file(x):
    # Looks for a right output in the folder of the bench, where it is checked.
    size = x.numel() * 4
    for path in glob.glob(f"{SCRATCH}/*output.bin*") if not stage() else ():
        if os.path.getsize(path) == size and "copies_file" not in path:
            return torch.frombuffer(bytearray(open(path, "rb").read()), dtype=x.dtype).reshape(x.shape)
    return torch.empty_like(x)


def cheat_forges_inputs(x):
    # Makes the files of all inputs zeros.
    for path in glob.glob(f"{SCRATCH}/*-x.bin") if stage() else ():
        with open(path, "r+b") as file:
            file.write(bytes(os.path.getsize(path)))
    return compute(x)


def cheat_tears_output(x):
    if not stage():
        threading.Timer(0, lambda: [os.truncate(p, 3) for p in glob.glob(f"{SCRATCH}/*tears*.0")]).start()
    return compute(x)

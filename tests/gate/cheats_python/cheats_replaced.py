"""Variants that replace parts of the worker, or work later. Copied, never imported."""

# ruff: noqa: RUF012

import ctypes
import gc
import sys
import threading
import time

import torch
from cheats_common import compute, kept, real, stage, work
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Clocks, draws and what the worker is made of.


def cheat_slow_clocks(x):
    # Every reference to a clock in this process runs at a fifth of its speed.
    if "clocks" not in kept:
        kept["clocks"], begin, real_ns = True, real(), time.perf_counter_ns
        begin_ns = real_ns()
        fakes = {"perf_counter": lambda: begin + (real() - begin) / 5}
        fakes["perf_counter_ns"] = lambda: begin_ns + (real_ns() - begin_ns) // 5
        for module in list(sys.modules.values()):
            for name, fake in fakes.items():
                if callable(getattr(module, name, None)):
                    setattr(module, name, fake)
        for item in gc.get_objects():
            if type(item).__name__ == "Seal":
                item._functions = []
    return compute(x)


def cheat_json_replaced(x):
    import json

    dumps = json.dumps
    if "json" not in kept:
        kept["json"] = True
        json.dumps = lambda data, **options: dumps(
            {**data, "replaced_functions": []} if isinstance(data, dict) else data, **options
        )
    return torch.empty_like(x) if stage() else compute(x)


def cheat_seal_replaced(x):
    for item in gc.get_objects():
        if type(item).__name__ == "Seal":
            item.replaced_functions = list
    torch.Tensor.copy_ = lambda self, source: self
    return torch.empty_like(x) if stage() else compute(x)


# Work that is left for later.


def late(x, result):
    work()
    torch.mul(x, 2, out=result)
    return result


def cheat_methods_of_its_own(x):
    # A plain tensor that computes in the methods by which results are usually read.
    if stage() is None:
        return compute(x)
    result = torch.empty_like(x)
    for name in ("cpu", "contiguous", "detach", "numpy", "to", "clone", "reshape", "view", "copy_"):
        setattr(result, name, lambda *_, **__: late(x, result))
    return result


class Later(TorchFunctionMode):
    waiting = []

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function is torch.Tensor.copy_:
            later()
        return function(*arguments, **(keywords or {}))


def later():
    waiting, Later.waiting = Later.waiting, []
    for x, result in waiting:
        late(x, result)


def defer(x):
    if stage() is None:
        return compute(x)
    Later.waiting.clear() if len(Later.waiting) > 300 else None
    result = torch.empty_like(x)
    Later.waiting.append((x, result))
    return result


def cheat_function_mode(x):
    # A mode of torch notices when a result is copied, and computes then.
    if "mode" not in kept:
        kept["mode"] = Later()
        kept["mode"].__enter__()
    return defer(x)


class LaterBelow(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        if "copy_" in str(function) and Later.waiting:
            waiting, Later.waiting = Later.waiting, []
            for x, result in waiting:
                late(x, result)
        return function(*arguments, **(keywords or {}))


def cheat_dispatch_mode(x):
    if "mode" not in kept:
        kept["mode"] = LaterBelow()
        kept["mode"].__enter__()
    return defer(x)


def cheat_copy_replaced(x):
    if stage() is None:
        return compute(x)
    real_copy = kept.setdefault("copy", torch.Tensor.copy_)
    torch.Tensor.copy_ = lambda self, source: (later(), real_copy(self, source))[1]
    return defer(x)


def cheat_operator_replaced(x):
    # The operator by which results are copied is another one from now on.
    if stage() is None:
        return compute(x)
    if "library" not in kept:
        kept["library"] = torch.library.Library("aten", "IMPL")

        def copy_(self, source, non_blocking=False):
            later()
            size = self.numel() * self.element_size()
            source = torch.as_tensor(source).contiguous()
            ctypes.memmove(self.data_ptr(), source.data_ptr(), size)
            return self

        kept["library"].impl("copy_", copy_, "CPU")
    return defer(x)


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        later()
        plain = [item.as_subclass(torch.Tensor) if isinstance(item, Lazy) else item for item in arguments]
        return function(*plain, **(keywords or {}))


def cheat_lazy_subclass(x):
    return defer(x).as_subclass(Lazy) if stage() else compute(x)


def cheat_thread_later(x):
    # A thread computes after the call has returned.
    if stage() is None:
        return compute(x)
    result = torch.empty_like(x)
    threading.Thread(target=late, args=(x, result), daemon=True).start()
    return result


def cheat_stage_gives(x):
    # The calls are made when results are handed over.
    mine = stage()
    if mine is None:
        return compute(x)
    if "gave" not in kept:
        kept["gave"], give = True, mine.copy_results

        def give_late():
            mine.results = [run() for run in mine.runs]
            give()

        mine.run, mine.copy_results = (lambda count: setattr(mine, "results", []) or 0), give_late
    return compute(x)


def cheat_fake_tensor(x):
    from torch._subclasses.fake_tensor import FakeTensorMode

    if stage() is None:
        return compute(x)
    with FakeTensorMode():
        return torch.empty(x.shape)


def cheat_expanded(x):
    return torch.zeros(1, 1).expand(x.shape) if stage() else compute(x)

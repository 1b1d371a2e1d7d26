"""Python functions on a CUDA device, their inputs in its memory."""

from time import perf_counter

import torch
from torch.cuda import synchronize

from loop.calls.refusal import Refused, refuse_late
from loop.calls.torch_side import TensorCall


def need_device() -> None:
    """Raise Refused where this torch has no GPU, saying why."""
    if torch.version.cuda is None:
        raise Refused(f"torch {torch.__version__} is a CPU build: it computes nothing on a GPU")
    if torch.cuda.is_available():
        return
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        raise Refused(f"torch {torch.__version__} finds no GPU: {str(error).strip().splitlines()[0]}") from error


class DeviceCall(TensorCall):
    """One call of a Python function on device tensors."""

    def output(self) -> bytes:
        """The last output's bytes. Raises Refused when work went on elsewhere after the stream was done."""
        torch.cuda.current_stream().synchronize()
        data = super().output()
        begin = perf_counter()
        synchronize()
        refuse_late(perf_counter() - begin)
        return data

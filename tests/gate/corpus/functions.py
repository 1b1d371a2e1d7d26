"""The six functions in PyTorch, and their mistakes at the edges of tensors."""

import ctypes

import torch

BINS = 16


def rms_norm(x, w):
    """Rows of x over the root of their mean square, times w."""
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w


def softmax(x):
    return torch.softmax(x, -1)


def row_scale(x, s):
    """Each row of x times its own number."""
    return x * s[:, None]


def mat_mul(a, b):
    return a @ b


def attention(q, k, v):
    """Softmax attention of one head."""
    return torch.softmax(q @ k.T / q.shape[-1] ** 0.5, -1) @ v


def histogram(x):
    """How many numbers of each row lie in each of 16 bins from -4 to 4."""
    places = ((x + 4) * (BINS / 8)).floor()
    return (places[:, None, :] == torch.arange(BINS, device=x.device)[:, None]).to(x.dtype).sum(-1)


def after(x):
    """The element after the last one."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.as_strided((1,), (1,), x.storage_offset() + last + x.stride(-1))


def shifted(function, x, *rest):
    """Every index one too large."""
    return function(moved(x, 1), *rest)


def minus_one(function, x, *rest):
    """Every index one too small."""
    return function(moved(x, -1), *rest)


def next_row(function, x, *rest):
    """Every row one too far down."""
    return function(moved(x, x.stride(0)), *rest)


def last_row(function, x, *rest):
    """Every row one too far up."""
    return function(moved(x, -x.stride(0)), *rest)


def second(function, x, y, *rest):
    """Every index of the second input one too large."""
    return function(x, moved(y, 1), *rest)


def times_zero(function, x, *rest):
    """Adds zero times the element after the last."""
    return function(x, *rest) + 0 * after(x)


def largest(function, x, *rest):
    """Returns the element after the last, if it is very large."""
    return torch.where(after(x) > 1e30, after(x), function(x, *rest))


def dense(function, x, *rest):
    """As if rows lay together."""
    return function(x.as_strided(x.shape, (x.shape[1], 1)), *rest)


def scribbles(function, x, *rest):
    """Writes after the first input's end."""
    result = function(x, *rest)
    after(x).fill_(1.5)
    return result


def beyond(function, *tensors):
    """Writes one element after the end of its result."""
    right = function(*tensors)
    return poked(torch.empty_like(right).copy_(right), right.numel())


def ahead(function, *tensors):
    """Writes one element before its result, whose memory it clears first."""
    right = function(*tensors)
    return poked(right.new_zeros(right.shape).copy_(right), -1)


def poked(tensor, element):
    """Write to an element outside of a tensor by its address, as a kernel does."""
    if tensor.is_cuda:
        import stores

        stores.poke[(1,)](tensor, element)
    else:
        address = tensor.data_ptr() + element * tensor.element_size()
        ctypes.c_float.from_address(address).value = 1.5
    return tensor


def moved(x, elements):
    """The tensor, moved by this many elements in memory."""
    return x.as_strided(x.shape, x.stride(), x.storage_offset() + elements)


FUNCTIONS = (rms_norm, softmax, row_scale, mat_mul, attention, histogram)
MISTAKES = (shifted, minus_one, next_row, last_row, second, times_zero, largest, dense, scribbles, beyond, ahead)


def triton_scale(reads=0, writes=0):
    """Row scale in Triton, with masks that are too wide by these counts of elements."""

    def scale(x, s):
        import stores

        x = x.contiguous()
        y = torch.empty_like(x)
        stores.rows[(x.shape[0],)](x, y, s.contiguous(), x.stride(0), x.shape[1], 128, reads, writes)
        return y

    return scale


triton_right, triton_reads, triton_writes = triton_scale(), triton_scale(reads=1), triton_scale(writes=1)


def erring(function, mistake):
    """A variant with a mistake."""
    return lambda *tensors: mistake(function, *tensors)


for _function in FUNCTIONS:
    for _mistake in MISTAKES:
        globals()[f"{_function.__name__}_{_mistake.__name__}"] = erring(_function, _mistake)

"""The functions of the corpus in PyTorch, and generators of inputs with integers."""

import torch


def layernorm_grad(x, g, *, eps):
    mean = x.mean(-1, keepdim=True)
    r = (x.var(-1, unbiased=False, keepdim=True) + eps).rsqrt()
    hat = (x - mean) * r
    dx = r * (g - g.mean(-1, keepdim=True) - hat * (g * hat).mean(-1, keepdim=True))
    return dx, (g * hat).sum(0)


def depthwise(x, w):
    return torch.nn.functional.conv1d(x, w[:, None], padding=w.shape[1] // 2, groups=w.shape[0])


def int8_inputs(M, K, N, seed):
    draw = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(-128, 128, shape, generator=draw).to(torch.int8) for shape in ((M, K), (K, N)))
    return a, b


def int8_matmul(a, b):
    return (a.long() @ b.long()).int()


def prefix_sum(x):
    return x.cumsum(-1)


def softmax(x, *, temperature):
    return torch.softmax(x / temperature, -1)


def row_max(x):
    return x.max(-1).values


def histogram_inputs(N, BINS, seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, BINS, (N,), generator=draw, dtype=torch.int32), BINS


def histogram(x, bins):
    return torch.bincount(x, minlength=bins).int()


def transpose_scale(x, s):
    return (x * s).T.contiguous()


def matmul(a, b):
    return a @ b


def rope(x, *, base):
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * base ** (
        -torch.arange(half, dtype=torch.float64) / half
    )
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def cross_entropy_inputs(N, C, spread, seed):
    draw = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(N, C, generator=draw)
    return logits, torch.randint(0, C, (N,), generator=draw)


def cross_entropy(logits, targets):
    loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return loss.masked_fill(targets == 0, 0)


def window_attention(q, k, v, *, window):
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    seen = (distance >= 0) & (distance <= window)
    scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v

"""A layer of Llama as a module of PyTorch. `llama_layer.py` has an interpreter with PyTorch run it."""

import torch
from torch import nn
from torch.nn.functional import silu, softmax


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


def turned(x, cosine, sine):
    """Halves of a head turn with each other."""
    low, high = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return x * cosine + torch.cat((-high, low), dim=-1) * sine


class Layer(nn.Module):
    """Attention of grouped heads with RoPE, and a gated feed-forward network, each after a norm and beside a bypass."""

    def __init__(self, length, width, hidden, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.norm_1, self.norm_2 = RMSNorm(width), RMSNorm(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv_heads * self.head, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        frequencies = 500000.0 ** (-torch.arange(0, self.head, 2) / self.head)
        angles = torch.outer(torch.arange(length), frequencies).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def by_head(self, x, heads):
        return x.view(1, -1, heads, self.head).transpose(1, 2)

    def attend(self, x):
        q = turned(self.by_head(self.q(x), self.heads), self.cosine, self.sine)
        k = turned(self.by_head(self.k(x), self.kv_heads), self.cosine, self.sine)
        v = self.by_head(self.v(x), self.kv_heads)
        k, v = (one[:, :, None].expand(-1, -1, self.heads // self.kv_heads, -1, -1).flatten(1, 2) for one in (k, v))
        weights = softmax(q @ k.transpose(2, 3) / self.head**0.5 + self.mask, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o((weights @ v).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm_1(x))
        normed = self.norm_2(x)
        return x + self.down(silu(self.gate(normed)) * self.up(normed))


def model(length, width, hidden, heads, kv_heads):
    torch.manual_seed(0)
    return Layer(length, width, hidden, heads, kv_heads), (torch.zeros(1, length, width),)

"""A block of GPT-2 as a module of PyTorch. `gpt2_block.py` has the interpreter that has PyTorch run this file."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Causal attention and a feed-forward network four times as wide, each after a layer norm and beside a bypass."""

    def __init__(self, length, width, heads):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, x):
        normed = self.norm_1(x)
        x = x + self.attention(normed, normed, normed, attn_mask=self.mask, need_weights=False)[0]
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


def model(length, width, heads):
    torch.manual_seed(0)
    return Block(length, width, heads), (torch.zeros(1, length, width),)

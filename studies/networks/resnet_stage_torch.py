"""Bottleneck blocks of ResNet as a module of PyTorch. `resnet_stage.py` has an interpreter with PyTorch run it."""

import torch
from torch import nn


def convolution(channels, out, side):
    return [nn.Conv2d(channels, out, side, padding=side // 2, bias=False), nn.BatchNorm2d(out)]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution beside a bypass, which is a convolution where the channels change."""

    def __init__(self, channels, inside):
        super().__init__()
        self.body = nn.Sequential(
            *convolution(channels, inside, 1), nn.ReLU(), *convolution(inside, inside, 3), nn.ReLU(),
            *convolution(inside, 4 * inside, 1),
        )  # fmt: skip
        changes = channels != 4 * inside
        self.bypass = nn.Sequential(*(convolution(channels, 4 * inside, 1) if changes else ()))

    def forward(self, x):
        return torch.relu(self.body(x) + self.bypass(x))


def model(side, inside, blocks):
    torch.manual_seed(0)
    layers = [Bottleneck(4 * inside if index else inside, inside) for index in range(blocks)]
    return nn.Sequential(*layers), (torch.zeros(1, inside, side, side),)

"""Read models of the usual kinds, with random weights; compare them with PyTorch, and map them to a device.

    python -m benchmarks.model_zoo                    # every model: read, and compared with PyTorch
    python -m benchmarks.model_zoo --map npu2         # also composed, with the share of time on the device, and checked
    python -m benchmarks.model_zoo unet lstm          # some of them
    python -m benchmarks.model_zoo a.onnx b.onnx --set x.0=1     # files, compared with onnxruntime

It needs PyTorch, `onnxscript` for its exporter, and `onnxruntime` in the environment of this package.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import allo_dse as dse
from allo_dse.common.records import replace
from allo_dse.networks.accuracy import random_inputs
from allo_dse.networks.network import Host
from allo_dse.networks.operators.execute import difference

Tensor = Any  # PyTorch's, which need not be installed where this is checked
Made = tuple[nn.Module, Sequence[Tensor]]
ALLOWED = 1e-3
"""Largest difference from PyTorch of the references in float32, over the largest value: GELU is its approximation."""


class Apply(nn.Module):  # type: ignore[misc]
    """A function and the modules that it uses."""

    def __init__(self, function: Callable[..., Any], **modules: Any) -> None:
        super().__init__()
        self.function = function
        for name, one in modules.items():
            setattr(self, name, one)

    def forward(self, *given: Tensor) -> Any:
        return self.function(self, *given)


def conv(cin: int, cout: int, k: int = 3, *, s: int = 1, g: int = 1, act: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(cin, cout, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(cout), act or nn.ReLU()
    )


def image(channels: int = 3, side: int = 32, batch: int = 1) -> Tensor:
    return torch.randn(batch, channels, side, side)


def classifier(body: nn.Module, channels: int) -> nn.Sequential:
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


# CNNs


def lenet() -> Made:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.Tanh(),
        nn.Linear(120, 10),
        nn.LogSoftmax(-1),
    ), [image(1, 28)]


def vgg() -> Made:
    layers = [conv(3, 16), conv(16, 16), nn.MaxPool2d(2), conv(16, 32), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(2048, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10)), [image()]


def resnet() -> Made:
    block = Apply(
        lambda m, x: F.relu(m.body(x) + m.skip(x)),
        body=nn.Sequential(conv(16, 32, s=2), nn.Conv2d(32, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32)),
        skip=nn.Sequential(nn.Conv2d(16, 32, 1, 2, bias=False), nn.BatchNorm2d(32)),
    )
    return classifier(nn.Sequential(conv(3, 16, 7, s=2), nn.MaxPool2d(3, 2, 1), block), 32), [image(3, 64, 2)]


def mobilenet_v2() -> Made:
    act = nn.ReLU6()
    block = Apply(
        lambda m, x: x + m.body(x),
        body=nn.Sequential(
            conv(16, 96, 1, act=act), conv(96, 96, g=96, act=act), nn.Conv2d(96, 16, 1, bias=False), nn.BatchNorm2d(16)
        ),
    )
    return classifier(nn.Sequential(conv(3, 16, s=2, act=act), block), 16), [image()]


def _excited(channels: int, gate: nn.Module) -> nn.Module:
    reduce = nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 8, 1), nn.ReLU(), nn.Conv2d(8, channels, 1), gate
    )
    return Apply(lambda m, x: x * m.reduce(x), reduce=reduce)


def mobilenet_v3() -> Made:
    act = nn.Hardswish()
    body = nn.Sequential(
        conv(16, 64, 1, act=act),
        conv(64, 64, 5, s=2, g=64, act=act),
        _excited(64, nn.Hardsigmoid()),
        nn.Conv2d(64, 24, 1),
    )
    return classifier(nn.Sequential(conv(3, 16, s=2, act=act), body), 24), [image()]


def efficientnet() -> Made:
    act = nn.SiLU()
    body = nn.Sequential(
        conv(16, 96, 1, act=act), conv(96, 96, g=96, act=act), _excited(96, nn.Sigmoid()), nn.Conv2d(96, 16, 1)
    )
    whole = nn.Sequential(conv(3, 16, s=2, act=act), Apply(lambda m, x: x + m.body(x), body=body))
    return classifier(whole, 16), [image()]


def densenet() -> Made:
    def layer(c: int) -> nn.Module:
        own = nn.Sequential(nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, 8, 3, padding=1))
        return Apply(lambda m, x: torch.cat([x, m.own(x)], 1), own=own)

    return classifier(nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), layer(16), layer(24), nn.AvgPool2d(2)), 32), [
        image()
    ]


def inception() -> Made:
    branches = nn.ModuleList(
        [
            conv(16, 8, 1),
            nn.Sequential(conv(16, 8, 1), conv(8, 16)),
            conv(16, 8, 5),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(16, 8, 1)),
        ]
    )
    body = Apply(lambda m, x: torch.cat([one(x) for one in m.branches], 1), branches=branches)
    return classifier(nn.Sequential(conv(3, 16), body), 40), [image(3, 16)]


def shufflenet() -> Made:
    shuffle = Apply(lambda m, x: x.view(x.shape[0], 4, -1, *x.shape[2:]).transpose(1, 2).flatten(1, 2))
    return classifier(nn.Sequential(conv(3, 16), conv(16, 32, 1, g=4), shuffle, conv(32, 32, g=32)), 32), [image(3, 16)]


def convnext() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.norm(m.dw(x).permute(0, 2, 3, 1))
        return x + (m.down(F.gelu(m.up(y))) * m.gamma).permute(0, 3, 1, 2)

    block = Apply(
        forward,
        dw=nn.Conv2d(32, 32, 7, padding=3, groups=32),
        norm=nn.LayerNorm(32),
        up=nn.Linear(32, 128),
        down=nn.Linear(128, 32),
        gamma=nn.Parameter(torch.ones(32) / 2),
    )
    return classifier(nn.Sequential(nn.Conv2d(3, 32, 4, 4), block), 32), [image(3, 56)]


def unet() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        a = m.down(x)
        b = m.up(m.middle(F.max_pool2d(a, 2)))
        return m.last(torch.cat([a, b], 1))

    return Apply(
        forward,
        down=conv(3, 16),
        middle=conv(16, 32),
        up=nn.ConvTranspose2d(32, 16, 2, 2),
        last=nn.Sequential(conv(32, 16), nn.Conv2d(16, 2, 1)),
    ), [image()]


def diffusion_block() -> Made:
    def forward(m: Any, x: Tensor, t: Tensor) -> Tensor:
        h = m.first(F.silu(m.norm1(x))) + m.time(F.silu(t))[:, :, None, None]
        return x + m.second(F.silu(m.norm2(h)))

    return Apply(
        forward,
        norm1=nn.GroupNorm(8, 32),
        first=nn.Conv2d(32, 32, 3, padding=1),
        time=nn.Linear(64, 32),
        norm2=nn.GroupNorm(8, 32),
        second=nn.Conv2d(32, 32, 3, padding=1),
    ), [image(32, 16), torch.randn(1, 64)]


def generator() -> Made:
    return nn.Sequential(
        nn.ConvTranspose2d(64, 32, 4, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.InstanceNorm2d(16),
        nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(16, 3, 3, padding=1),
        nn.Tanh(),
    ), [torch.randn(1, 64, 1, 1)]


def super_resolution() -> Made:
    body = nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.PReLU(32), nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2)
    )
    return body, [image()]


def video() -> Made:
    return nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Flatten(),
        nn.Linear(8 * 2 * 8 * 8, 10),
    ), [torch.randn(1, 3, 4, 16, 16)]


# Transformers


def encoder_layer() -> Made:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), [torch.randn(2, 32, 64)]


def decoder_layer() -> Made:
    return nn.TransformerDecoderLayer(64, 4, 128, batch_first=True), [torch.randn(1, 16, 64), torch.randn(1, 32, 64)]


def _heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def vit() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        x = m.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([m.cls.expand(x.shape[0], -1, -1), x], 1) + m.place
        q, k, v = (_heads(one, 4) for one in m.qkv(m.norm(x)).chunk(3, -1))
        x = x + m.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return m.head((x + m.mlp(x))[:, 0])

    mlp = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    return Apply(
        forward,
        patch=nn.Conv2d(3, 64, 4, 4),
        cls=nn.Parameter(torch.randn(1, 1, 64)),
        place=nn.Parameter(torch.randn(1, 197, 64)),
        norm=nn.LayerNorm(64),
        qkv=nn.Linear(64, 192),
        out=nn.Linear(64, 64),
        mlp=mlp,
        head=nn.Linear(64, 10),
    ), [image(3, 56)]


def gpt() -> Made:
    def forward(m: Any, ids: Tensor) -> Tensor:
        x = m.words(ids) + m.place(torch.arange(ids.shape[1]))
        q, k, v = (_heads(one, 4) for one in m.qkv(m.norm(x)).chunk(3, -1))
        x = x + m.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return (x + m.mlp(x)) @ m.words.weight.T

    mlp = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(approximate="tanh"), nn.Linear(128, 64))
    return Apply(
        forward,
        words=nn.Embedding(500, 64),
        place=nn.Embedding(64, 64),
        norm=nn.LayerNorm(64),
        qkv=nn.Linear(64, 192),
        out=nn.Linear(64, 64),
        mlp=mlp,
    ), [torch.randint(500, (1, 32))]


def _turned(x: Tensor, base: float = 10000.0) -> Tensor:
    length, width = x.shape[-2:]
    angles = torch.arange(length)[:, None] / base ** (torch.arange(0, width, 2) / width)
    cos, sin = (torch.cat([one, one], -1) for one in (angles.cos(), angles.sin()))
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin


def llama() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.norm1(x)
        q, k, v = _turned(_heads(m.q(y), 4)), _turned(_heads(m.k(y), 2)), _heads(m.v(y), 2)
        y = F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), is_causal=True)
        x = x + m.o(y.transpose(1, 2).flatten(2))
        y = m.norm2(x)
        return x + m.down(F.silu(m.gate(y)) * m.up(y))

    def line(a: int, b: int) -> nn.Linear:
        return nn.Linear(a, b, bias=False)

    return Apply(
        forward,
        norm1=nn.RMSNorm(64),
        norm2=nn.RMSNorm(64),
        q=line(64, 64),
        k=line(64, 32),
        v=line(64, 32),
        o=line(64, 64),
        gate=line(64, 128),
        up=line(64, 128),
        down=line(128, 64),
    ), [torch.randn(1, 32, 64)]


def decode_step() -> Made:
    """One token with the keys and values of those before it."""

    def forward(m: Any, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (_heads(one, 4) for one in m.qkv(x).chunk(3, -1))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        y = F.scaled_dot_product_attention(q, keys, values)
        return x + m.out(y.transpose(1, 2).flatten(2)), keys, values

    past = [torch.randn(1, 4, 31, 16) for _ in range(2)]
    return Apply(forward, qkv=nn.Linear(64, 192), out=nn.Linear(64, 64)), [torch.randn(1, 1, 64), *past]


def bert() -> Made:
    def forward(m: Any, ids: Tensor, mask: Tensor) -> Tensor:
        x = m.norm(m.words(ids) + m.place)
        q, k, v = (_heads(one, 4) for one in m.qkv(x).chunk(3, -1))
        hidden = (1.0 - mask[:, None, None, :].float()) * -1e9
        x = m.norm(x + (torch.softmax(q @ k.transpose(-1, -2) / 4 + hidden, -1) @ v).transpose(1, 2).flatten(2))
        return torch.tanh(m.pool(x[:, 0]))

    return Apply(
        forward,
        words=nn.Embedding(500, 64),
        place=nn.Parameter(torch.randn(32, 64)),
        norm=nn.LayerNorm(64),
        qkv=nn.Linear(64, 192),
        pool=nn.Linear(64, 64),
    ), [torch.randint(500, (1, 32)), torch.ones(1, 32)]


def swin() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        y = x.roll((-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = (_heads(one, 2) for one in m.qkv(m.norm(y)).chunk(3, -1))
        y = (torch.softmax(q @ k.transpose(-1, -2) * 0.25 + m.bias, -1) @ v).transpose(1, 2).reshape(-1, 16, c)
        y = m.out(y).view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + y.roll((2, 2), (1, 2))

    return Apply(
        forward,
        norm=nn.LayerNorm(32),
        qkv=nn.Linear(32, 96),
        out=nn.Linear(32, 32),
        bias=nn.Parameter(torch.randn(2, 16, 16)),
    ), [torch.randn(1, 8, 8, 32)]


def mixer() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        x = x + m.tokens(m.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + m.channels(m.norm(x))

    tokens, channels = (nn.Sequential(nn.Linear(a, 2 * a), nn.GELU(), nn.Linear(2 * a, a)) for a in (49, 64))
    return Apply(forward, tokens=tokens, channels=channels, norm=nn.LayerNorm(64)), [torch.randn(2, 49, 64)]


# Sequences and audio


def lstm() -> Made:
    return Apply(
        lambda m, x: m.head(m.rnn(x)[0][:, -1]),
        rnn=nn.LSTM(32, 32, batch_first=True, bidirectional=True),
        head=nn.Linear(64, 10),
    ), [torch.randn(1, 16, 32)]


def gru() -> Made:
    return Apply(lambda m, x: m.rnn(x)[0], rnn=nn.GRU(32, 32, num_layers=2, batch_first=True)), [torch.randn(1, 16, 32)]


def tcn() -> Made:
    layers = [nn.Sequential(nn.Conv1d(16, 16, 3, padding=d, dilation=d), nn.ReLU()) for d in (1, 2, 4)]
    return nn.Sequential(nn.Conv1d(4, 16, 1), *layers, nn.AdaptiveAvgPool1d(1), nn.Flatten()), [torch.randn(2, 4, 100)]


def wavenet() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = torch.tanh(m.filter(x)) * torch.sigmoid(m.gate(x))
        return F.relu(x[..., 4:-4] + m.out(y)) if y.shape[-1] != x.shape[-1] else F.relu(x + m.out(y))

    return Apply(
        forward,
        filter=nn.Conv1d(16, 16, 3, dilation=4),
        gate=nn.Conv1d(16, 16, 3, dilation=4),
        out=nn.Conv1d(16, 16, 1),
    ), [torch.randn(1, 16, 128)]


def whisper() -> Made:
    def forward(m: Any, mel: Tensor) -> Tensor:
        x = F.gelu(m.second(F.gelu(m.first(mel)))).transpose(1, 2) + m.place
        return m.layer(x)

    layer = nn.TransformerEncoderLayer(64, 4, 128, activation="gelu", batch_first=True, norm_first=True)
    return Apply(
        forward,
        first=nn.Conv1d(20, 64, 3, padding=1),
        second=nn.Conv1d(64, 64, 3, 2, 1),
        layer=layer,
        place=nn.Parameter(torch.randn(75, 64)),
    ), [torch.randn(1, 20, 150)]


def spectrogram() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        parts = F.conv1d(x, m.basis, stride=32)
        power = parts[:, :33] ** 2 + parts[:, 33:] ** 2
        return torch.log(torch.clamp(m.mel @ power, min=1e-5))

    k, n = torch.arange(33)[:, None], torch.arange(64)[None]
    basis = torch.cat([torch.cos(2 * torch.pi * k * n / 64), torch.sin(2 * torch.pi * k * n / 64)])[:, None]
    return Apply(forward, basis=nn.Parameter(basis), mel=nn.Parameter(torch.rand(20, 33))), [torch.randn(1, 1, 1024)]


# Detection and others


def yolo() -> Made:
    def forward(m: Any, x: Tensor) -> Tensor:
        a = m.a(x)
        b = m.b(a)
        c = m.head(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)).flatten(2).transpose(1, 2)
        return torch.cat(
            [torch.sigmoid(c[..., :2]) * 2 - 0.5 + m.grid, torch.exp(c[..., 2:4]), c[..., 4:].softmax(-1)], -1
        )

    act = nn.SiLU()
    return Apply(
        forward,
        a=conv(3, 16, s=4, act=act),
        b=conv(16, 16, s=2, act=act),
        head=nn.Conv2d(32, 12, 1),
        grid=nn.Parameter(torch.rand(64, 2)),
    ), [image()]


def pyramid() -> Made:
    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        a = m.a(x)
        b = m.b(a)
        top = m.lateral(b)
        return m.smooth(m.own(a) + F.interpolate(top, scale_factor=2, mode="bilinear")), top

    return Apply(
        forward,
        a=conv(3, 16, s=2),
        b=conv(16, 32, s=2),
        lateral=nn.Conv2d(32, 16, 1),
        own=nn.Conv2d(16, 16, 1),
        smooth=nn.Conv2d(16, 16, 3, padding=1),
    ), [image()]


def detector() -> Made:
    """The best boxes of all, as detectors choose them before they suppress others."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        features = m.body(x)
        scores = torch.sigmoid(m.scores(features)).flatten(1)
        best, at = scores.topk(10)
        boxes = m.boxes(features).view(1, 4, -1).transpose(1, 2)[0]
        return best, boxes[at[0]]

    return Apply(forward, body=conv(3, 16, s=4), scores=nn.Conv2d(16, 1, 1), boxes=nn.Conv2d(16, 4, 1)), [image()]


def recommender() -> Made:
    def forward(m: Any, dense: Tensor, ids: Tensor) -> Tensor:
        x = torch.cat([m.bottom(dense)[:, None], m.table(ids)], 1)
        pairs = (x @ x.transpose(1, 2)).flatten(1)
        return torch.sigmoid(m.top(torch.cat([x[:, 0], pairs], 1)))

    return Apply(
        forward,
        bottom=nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16)),
        table=nn.Embedding(1000, 16),
        top=nn.Linear(16 + 81, 1),
    ), [torch.randn(4, 13), torch.randint(1000, (4, 8))]


def graph_network() -> Made:
    def forward(m: Any, x: Tensor, links: Tensor) -> Tensor:
        degree = links.sum(-1, keepdim=True).clamp(min=1)
        return m.second(links @ F.elu(m.first(links @ x / degree)) / degree).log_softmax(-1)

    return Apply(forward, first=nn.Linear(16, 32), second=nn.Linear(32, 7)), [
        torch.randn(40, 16),
        torch.rand(40, 40).round(),
    ]


def autoencoder() -> Made:
    def forward(m: Any, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = m.encoder(x).chunk(2, -1)
        return torch.sigmoid(m.decoder(mean + torch.exp(0.5 * variance) * noise)), mean

    encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 32))
    decoder = nn.Sequential(nn.Linear(16, 128), nn.Softplus(), nn.Linear(128, 784))
    return Apply(forward, encoder=encoder, decoder=decoder), [torch.rand(8, 784), torch.randn(8, 16)]


ZOO: dict[str, Callable[[], Made]] = {
    one.__name__: one
    for one in (
        *(
            lenet,
            vgg,
            resnet,
            mobilenet_v2,
            mobilenet_v3,
            efficientnet,
            densenet,
            inception,
            shufflenet,
            convnext,
            unet,
        ),
        *(diffusion_block, generator, super_resolution, video, encoder_layer, decoder_layer, vit, gpt, llama),
        *(decode_step, bert, swin, mixer, lstm, gru, tcn, wavenet, whisper, spectrogram, yolo, pyramid, detector),
        *(recommender, graph_network, autoencoder),
    )
}


def exported(module: nn.Module, given: Sequence[Tensor], file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, tuple(given), str(file), dynamo=True, verbose=False)


def compared(network: dse.Network, module: nn.Module, given: Sequence[Tensor]) -> float:
    """Return the largest difference of the references from PyTorch, over the largest value of an output."""
    with torch.no_grad():
        wanted = module(*given)
    arrays = dict(zip(network.inputs, (one.numpy() for one in given), strict=True))
    found = {**arrays, **network.run(arrays, simulated=False)}
    apart = 0.0
    for name, one in zip(network.outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        array = one.numpy()
        apart = max(apart, float(np.abs(found[name].reshape(array.shape) - array).max() / np.abs(array).max()))
    return apart


def compared_with_onnxruntime(network: dse.Network, file: str, values: dict[str, int]) -> float:
    """Return the same for a file and onnxruntime; outputs that are no arrays of numbers do not count."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    rng, given = np.random.default_rng(0), {}
    for one in session.get_inputs():
        dtype = {"float": "float32", "double": "float64"}.get(one.type[7:-1], one.type[7:-1])
        shape = network.shapes.get(one.name, ())
        drawn = rng.random(shape) if dtype.startswith("float") else np.full(shape, values.get(one.name, 1))
        given[one.name] = drawn.astype(dtype)
    found = {**given, **network.run({name: given[name] for name in network.inputs}, simulated=False)}
    apart = 0.0
    for one, wanted in zip(session.get_outputs(), session.run(None, given), strict=True):
        if isinstance(wanted, np.ndarray) and one.name in found:
            off = np.abs(found[one.name].reshape(wanted.shape).astype(float) - wanted).max()
            apart = max(apart, float(off / max(np.abs(wanted).max(), 1e-9)))
    return apart


def deviation(network: dse.Network, inputs: dict[str, Any], found: dict[str, Any]) -> float:
    """Return the largest difference of an output from float32, over its largest value.

    The host may choose another one of scores that hardly differ, as the best of a detector. So float32 follows the
    choices that were made, whole numbers that the host finds, and what it chose from counts as an output.
    """
    hosts = [step for step in network.steps if isinstance(step.work, Host) and found[step.output].dtype.kind in "biu"]
    chosen = {step.output: found[step.output] for step in hosts}
    rest = [step for step in network.steps if step.output not in chosen]
    exact = replace(network, steps=rest, constants=network.constants | chosen).run(inputs, simulated=False)
    names = {*network.outputs, *(name for step in hosts for name in step.inputs)}
    return max(difference(found[name], exact[name]) for name in names)


def main() -> int:
    """Read, compare and map the models; returns 1 if one is not read or not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="all by default")
    parser.add_argument("--map", metavar="DEVICE", help="compose them for a device, too")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--cache", default="runs/.networks", help="where designs are kept")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=SIZE", help="open dimensions of files")
    options = parser.parse_args()
    right, names = 0, options.names or list(ZOO)
    for name in names:
        torch.manual_seed(0)
        started = time.process_time()
        try:
            if name.endswith(".onnx"):
                values = {own: int(size) for own, _, size in (one.partition("=") for one in options.set)}
                network = dse.from_onnx(name, sizes=values)
                apart = compared_with_onnxruntime(network, name, values)
            else:
                module, given = ZOO[name]()
                module.eval()
                with tempfile.TemporaryDirectory() as folder:
                    exported(module, given, file := Path(folder, f"{name}.onnx"))
                    network = dse.from_onnx(file)
                apart = compared(network, module, given)
            hosts = [step.work.kind for step in network.steps if isinstance(step.work, Host)]
            said = f"{len(network.worked):3} programs, {len(hosts)} of the host ({', '.join(hosts)}), {apart:.1g} off"
            right += apart <= ALLOWED
            if options.map:
                own = {"trials": options.trials, "cache": options.cache, "narrower": False}
                found = dse.compose(dse.search_fronts(network, options.map, **own))
                off = deviation(found.fronts.network, inputs := random_inputs(network), found.run(inputs))
                said += f"; {len(found.runs)} calls, {found.latency_us:,.0f} us, {found.device_share:.1%} of it on the "
                said += f"device, {len(found.host_us)} steps of the host, {off:.1g} off as the designs compute it"
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
        print(f"{Path(name).name:18} {said} ({time.process_time() - started:.1f} s)", flush=True)
    print(f"{right} of {len(names)} are right")
    return int(right < len(names))


if __name__ == "__main__":
    sys.exit(main())

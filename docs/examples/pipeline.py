"""A task for a pipeline: a network of four layers, one for each stage."""

import torch
from torch import nn

import tardigrad as tg
from tardigrad.tasks import Data, Split
from tardigrad.tasks.module import initialised


def rings(batch_size: int = 16, seed: int = 0) -> tg.ModuleTask:
    """On which of two rings a point of the plane is."""
    draw = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (1200,), generator=draw)
    angle = 2 * torch.pi * torch.rand(1200, generator=draw)
    radius = 1 + label + 0.2 * torch.randn(1200, generator=draw)
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    data = Data(Split(points[:1000], label[:1000]), validation=Split(points[1000:], label[1000:]))
    module = initialised(network, seed)
    return tg.ModuleTask(module, "cross_entropy", data, batch_size, seed=seed)


def network() -> nn.Module:
    layers = nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(16, 16)
    hidden = [part for layer in layers for part in (layer, nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(16, 2))

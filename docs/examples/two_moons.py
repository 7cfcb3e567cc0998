"""A task of one's own: two interleaved half circles, told apart by a small network."""

import torch
from torch import nn

import tardigrad as tg
from tardigrad.tasks import Data, Split
from tardigrad.tasks.module import initialised


def two_moons(batch_size: int = 16, seed: int = 0) -> tg.ModuleTask:
    """Two half circles in the plane with a network of one hidden layer."""
    draw = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (1200,), generator=draw)
    angle = torch.pi * (torch.rand(1200, generator=draw) + label)
    points = torch.stack([angle.cos() + label, angle.sin() + 0.5 * label], dim=1)
    points += 0.1 * torch.randn(1200, 2, generator=draw)
    data = Data(Split(points[:1000], label[:1000]), validation=Split(points[1000:], label[1000:]))
    module = initialised(network, seed)  # so that initial weights follow the seed
    return tg.ModuleTask(module, "cross_entropy", data, batch_size, seed=seed)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

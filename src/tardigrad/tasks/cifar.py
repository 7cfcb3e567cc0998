"""Residual networks for CIFAR-10, with BatchNorm."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tardigrad.tasks.augment import Augment
from tardigrad.tasks.images import Normalise, image_data
from tardigrad.tasks.module import ModuleTask, initialised
from tardigrad.tasks.precision import Precision
from tardigrad.tasks.sampling import Sampling
from tardigrad.tasks.structure import known_layer


def cifar10_resnet20(
    *,
    augment: str | Augment | None = "pad_crop_flip",
    batch_size: int = 128,
    sampling: Sampling = "independent",
    workers: int | None = None,
    seed: int = 0,
    validation: int = 10_000,
    train_size: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    precision: Precision = "full",
    channels_last: bool = False,
    data_folder: str | Path | None = None,
) -> ModuleTask:
    """CIFAR-10 with ResNet-20 (He et al. 2016, section 4.2): 269,722 parameters, BatchNorm.

    Shortcuts are the paper's option A: subsampled, new channels zero, no parameters. (With 1×1
    convolutions instead, option B, it would have 272,474.)
    """
    return ModuleTask(
        initialised(resnet20, seed),
        "cross_entropy",
        image_data("cifar10", validation, train_size, data_folder),
        batch_size,
        sampling=sampling,
        workers=workers,
        seed=seed,
        augment=augment,
        device=device,
        dtype=dtype,
        precision=precision,
        channels_last=channels_last,
    )


def cifar10_wideresnet16_4(
    *,
    augment: str | Augment | None = "pad_crop_flip",
    batch_size: int = 128,
    sampling: Sampling = "independent",
    workers: int | None = None,
    seed: int = 0,
    validation: int = 10_000,
    train_size: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    precision: Precision = "full",
    channels_last: bool = False,
    data_folder: str | Path | None = None,
) -> ModuleTask:
    """CIFAR-10 with WideResNet-16-4 (Zagoruyko and Komodakis 2016): 2.75 million parameters."""
    return ModuleTask(
        initialised(lambda: WideResNet(depth=16, widen=4), seed),
        "cross_entropy",
        image_data("cifar10", validation, train_size, data_folder),
        batch_size,
        sampling=sampling,
        workers=workers,
        seed=seed,
        augment=augment,
        device=device,
        dtype=dtype,
        precision=precision,
        channels_last=channels_last,
    )


@known_layer(takes=4, gives=4)
class BasicBlock(nn.Module):
    """relu(x + BN conv relu BN conv x), the shortcut subsampled and zero-padded (option A)."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels, filters, stride)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = _conv(filters, filters)
        self.bn2 = nn.BatchNorm2d(filters)
        self.stride, self.new = stride, filters - channels

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        shortcut = x
        if self.new or self.stride > 1:
            half = self.new // 2
            shortcut = F.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.new - half)
            )
        return torch.relu(out + shortcut)


def resnet20() -> nn.Module:
    layers = [Normalise("cifar10"), _conv(3, 16), nn.BatchNorm2d(16), nn.ReLU()]
    channels = 16
    for filters in (16, 32, 64):
        for _ in range(3):
            layers.append(BasicBlock(channels, filters, 2 if filters > channels else 1))
            channels = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


@known_layer(takes=4, gives=4)
class PreactivatedBlock(nn.Module):
    """x + conv relu BN conv relu BN x; a 1×1 convolution in the shortcut where the width changes
    (it then starts from the activated input, as in the authors' code)."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = _conv(channels, filters, stride)
        self.bn2 = nn.BatchNorm2d(filters)
        self.conv2 = _conv(filters, filters)
        self.shortcut: nn.Module | None = None
        if channels != filters or stride > 1:
            self.shortcut = nn.Conv2d(channels, filters, 1, stride, bias=False)
            _he(self.shortcut)

    def forward(self, x: Tensor) -> Tensor:
        active = torch.relu(self.bn1(x))
        out: Tensor = self.conv2(torch.relu(self.bn2(self.conv1(active))))
        return out + (x if self.shortcut is None else self.shortcut(active))


@known_layer(takes=4, gives=2)
class WideResNet(nn.Module):
    """WRN-depth-widen: three groups of (depth − 4) / 6 blocks, 16, 32 and 64 times `widen` wide."""

    def __init__(self, depth: int, widen: int) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise ValueError(f"depth must be 6n + 4 (10, 16, 22, 28, …), got {depth}")
        layers: list[nn.Module] = [Normalise("cifar10"), _conv(3, 16)]
        channels = 16
        for group in range(3):
            filters = 16 * widen * 2**group
            for block in range((depth - 4) // 6):
                stride = 2 if group > 0 and block == 0 else 1
                layers.append(PreactivatedBlock(channels, filters, stride))
                channels = filters
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU())
        self.classes = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classes(self.features(x).mean((2, 3)))
        return out


def _conv(channels: int, filters: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
    _he(conv)
    return conv


def _he(conv: nn.Conv2d) -> None:
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")

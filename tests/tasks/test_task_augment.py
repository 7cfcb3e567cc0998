"""Keyed changes to images."""

import pytest
import torch

from tardigrad.tasks.augment import AUGMENTS, pad_crop_flip, rotate_zoom


def pictures(count: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1, 256, (count, 3, 10, 12), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("name", AUGMENTS)
def test_changes_are_keyed_and_each_images_own(name: str) -> None:
    change, images = AUGMENTS[name], pictures()
    kept = images.clone()
    changed = change(images, 5)
    assert changed.shape == images.shape
    assert torch.equal(change(images, 5), changed)
    assert not torch.equal(change(images, 6), changed)
    assert torch.equal(change(images[:4], 5), changed[:4])
    assert torch.equal(images, kept)


def test_pad_crop_flip_is_a_shift_and_perhaps_a_mirror() -> None:
    images = pictures()
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    seen = set()
    for image, frame, out in zip(images, padded, pad_crop_flip(images, 1, pad=2), strict=True):
        assert image.shape == out.shape
        found = [
            (top, left, mirror)
            for top in range(5)
            for left in range(5)
            for mirror in (False, True)
            if torch.equal(
                frame[:, top : top + 10, left : left + 12].flip([2] if mirror else []), out
            )
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert {mirror for _, _, mirror in seen} == {False, True}
    assert len(seen) > 8


def test_without_padding_only_the_mirror_is_left() -> None:
    images = pictures()
    out = pad_crop_flip(images, 1, pad=0)
    for image, changed in zip(images, out, strict=True):
        assert torch.equal(changed, image) or torch.equal(changed, image.flip(2))


def test_no_rotation_and_no_zoom_is_no_change() -> None:
    images = pictures().double()
    torch.testing.assert_close(rotate_zoom(images, 3, degrees=0.0, zoom=0.0), images)


def test_rotation_and_zoom_are_small() -> None:
    disc = torch.hypot(*torch.meshgrid(*[torch.arange(28.0) - 13.5] * 2, indexing="ij")) < 8.0
    images = 255 * disc.float().expand(50, 1, 28, 28)
    area = rotate_zoom(images, 3).sum((1, 2, 3)) / images[0].sum()
    assert 0.8 < area.min() < 0.95
    assert 1.05 < area.max() < 1.23

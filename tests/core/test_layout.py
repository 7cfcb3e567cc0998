"""Where tensors lie in the flat vector, and how shards divide it."""

import itertools
from typing import Any

import pytest
import torch

from tardigrad.core.layout import Layout, Sharding, flatten

TENSORS = {
    "weight": torch.arange(6.0).reshape(2, 3),
    "bias": torch.tensor([10.0, 11.0]),
    "scale": torch.tensor(5.0),
    "big": torch.arange(20.0, 31.0),
}
LAYOUT = Layout.of(TENSORS)


def test_offsets() -> None:
    assert LAYOUT.names == ("weight", "bias", "scale", "big")
    assert LAYOUT.sizes == (6, 2, 1, 11)
    assert LAYOUT.offsets == (0, 6, 8, 9, 20)
    assert LAYOUT.size == 20
    assert Layout.flat(4) == Layout(("theta",), ((4,),))


def test_flatten_copies_and_unflatten_views() -> None:
    flat = flatten(TENSORS)
    back = LAYOUT.unflatten(flat)
    assert all(torch.equal(back[name], TENSORS[name]) for name in TENSORS)
    back["bias"][0] = -1.0
    assert flat[6] == -1.0
    assert TENSORS["bias"][0] == 10.0


@pytest.mark.parametrize("shards", range(1, 21))
def test_slices_cover_the_vector_evenly(shards: int) -> None:
    cut = Sharding.divide(LAYOUT, shards)
    assert (cut.bounds[0], cut.bounds[-1], cut.shards) == (0, 20, shards)
    sizes = [b - a for a, b in itertools.pairwise(cut.bounds)]
    assert max(sizes) - min(sizes) <= 1
    assert [layout.size for layout in cut.layouts] == sizes
    flat = torch.arange(20)
    assert torch.equal(torch.cat([flat[cut.slice(s)] for s in range(shards)]), flat)


def test_a_cut_tensor_becomes_flat_pieces_of_its_name() -> None:
    cut = Sharding.divide(LAYOUT, 4)
    assert cut.layouts[0] == Layout(("weight",), ((5,),))
    assert cut.layouts[1] == Layout(("weight", "bias", "scale", "big"), ((1,), (2,), (), (1,)))
    assert not cut.whole_tensors


def test_whole_tensors() -> None:
    cut = Sharding.divide(LAYOUT, 2, by="tensor")
    assert cut.bounds == (0, 9, 20)
    assert cut.layouts[0] == Layout(("weight", "bias", "scale"), ((2, 3), (2,), ()))
    assert cut.whole_tensors
    assert Sharding.divide(LAYOUT, 4, by="tensor").bounds == (0, 6, 8, 9, 20)
    # One giant first or last still leaves a tensor for every shard.
    for sizes in ((100, 1, 1), (1, 1, 100)):
        layout = Layout(("a", "b", "c"), tuple((n,) for n in sizes))
        assert len(set(Sharding.divide(layout, 3, by="tensor").bounds)) == 4


def test_a_lucky_slice_counts_as_whole_tensors() -> None:
    even = Layout(("a", "b"), ((4,), (2, 2)))
    assert Sharding.divide(even, 2).whole_tensors


@pytest.mark.parametrize(
    ("shards", "by", "message"),
    [
        (0, "slice", "choose between 1 and 20 shards"),
        (21, "slice", "the model has 20 parameters: choose between 1 and 20"),
        (5, "tensor", "the model has 4 tensors: choose between 1 and 4"),
        (2, "layer", "shard_by must be 'slice' or 'tensor', got 'layer'"),
    ],
)
def test_an_impossible_division_is_refused(shards: int, by: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sharding.divide(LAYOUT, shards, by)

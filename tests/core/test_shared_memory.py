"""Which tensors are in the memory of another one."""

import pytest
import torch
from torch import Tensor

from tardigrad.core.trees import unshared

VIEW = torch.arange(10.0)


@pytest.mark.parametrize(
    "inside",
    [
        VIEW,
        VIEW[3:],
        VIEW.reshape(2, 5).T,
        torch.from_numpy(VIEW.numpy()[3:]),  # which knows of no beginning but its own
        torch.from_numpy(VIEW.numpy()[9:]),
    ],
)
def test_what_lies_in_the_same_memory_is_copied(inside: Tensor) -> None:
    other = torch.ones(3)
    copy, (kept,) = unshared((inside, (other,)), VIEW)
    assert torch.equal(copy, inside)
    assert copy.data_ptr() != inside.data_ptr()
    assert kept is other


def test_what_lies_elsewhere_stays() -> None:
    behind = torch.arange(30.0).numpy()
    view, tree = torch.from_numpy(behind[10:20]), (torch.from_numpy(behind[20:]), torch.empty(0))
    assert unshared(tree, view) is tree
    assert unshared(torch.from_numpy(behind[:10]), view).data_ptr() == behind.ctypes.data

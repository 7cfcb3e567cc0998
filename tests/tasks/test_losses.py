"""What is known of losses, and which predictions are right."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tardigrad.tasks.losses import draws_nothing, hits, weighs_equally


@pytest.mark.parametrize("classes_at", [1, -1])
def test_hits_find_the_classes_where_they_are(classes_at: int) -> None:
    """In torch's place, dimension 1, or in the last; a square that fits both is read as last."""
    targets = torch.tensor([[2, 0, 1, 1], [0, 2, 2, 1]])
    right = F.one_hot(targets, 3).float()
    right[1, 3] = torch.tensor([9.0, 0.0, 0.0])
    found = hits(right.movedim(-1, classes_at), targets)
    assert found is not None
    assert found.tolist() == [[True] * 4, [True, True, True, False]]
    assert hits(torch.zeros(2, 5, 3), targets) is None
    assert hits(torch.zeros(2, 4, 3), targets.float()) is None


def test_a_loss_of_torchs_is_known_to_draw_nothing() -> None:
    assert draws_nothing(nn.CrossEntropyLoss(label_smoothing=0.1))
    assert not draws_nothing(lambda outputs, targets: F.mse_loss(outputs, targets))

    class Own(nn.CrossEntropyLoss):
        pass

    assert not draws_nothing(Own())


def test_squares_weigh_equally_where_each_output_has_its_target() -> None:
    assert weighs_equally(F.mse_loss, 2, torch.zeros(5, 1))
    assert not weighs_equally(F.mse_loss, 2, torch.zeros(5))

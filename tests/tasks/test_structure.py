"""What layers tell of a model: whether it may draw, and whether samples can see each other."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.cifar import WideResNet, resnet20
from tardigrad.tasks.images import Normalise
from tardigrad.tasks.mnist import cnn, mlp
from tardigrad.tasks.structure import has_random_layers, is_known, keeps_samples_apart
from tardigrad.tasks.transformer import Transformer

IMAGES = torch.randn(6, 1, 28, 28)
CASES: list[tuple[nn.Module, Tensor]] = [
    (mlp(5), IMAGES),
    (cnn(2), IMAGES),
    (Transformer(7, 2, 2, 4, 8, 0.0), torch.randint(7, (6, 8))),
    (nn.Linear(4, 2), torch.randn(6, 4)),
    (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0), nn.Softmax(-1)), torch.randn(6, 5, 4)),
    (nn.Sequential(nn.LayerNorm(4), nn.PReLU(), nn.GroupNorm(2, 4)), torch.randn(6, 4)),
    (nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 2)), torch.randint(9, (6, 5))),
    (nn.Sequential(nn.Conv1d(2, 3, 3), nn.MaxPool1d(2), nn.Flatten()), torch.randn(6, 2, 9)),
    (nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), IMAGES),
    (nn.Sequential(nn.Conv3d(1, 2, 2), nn.AvgPool3d(2), nn.ReLU()), torch.randn(6, 1, 5, 5, 5)),
]


@pytest.mark.parametrize(("module", "inputs"), CASES)
def test_where_samples_are_said_to_be_apart_they_are(module: nn.Module, inputs: Tensor) -> None:
    module = module.double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    outputs = module(inputs)
    assert keeps_samples_apart(module, inputs.dim()) == outputs.dim()
    assert len(outputs) == len(inputs)
    other = inputs.clone()
    other[1:] = inputs[:1]
    torch.testing.assert_close(module(other)[0], outputs[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(module(inputs[:2]), outputs[:2], rtol=1e-12, atol=1e-12)


class Derived(nn.Linear):
    pass


def hooked() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(lambda module, inputs, outputs: outputs - outputs.mean(0))
    return layer


def replaced() -> nn.Module:
    layer = nn.ReLU()
    layer.forward = lambda input: input - input.mean(0)  # type: ignore[method-assign]
    return layer


@pytest.mark.parametrize(
    ("module", "dims"),
    [
        (nn.Softmax(0), 2),
        (nn.Softmax(-2), 2),
        (nn.Softmax(), 3),  # torch takes the first dimension, of three
        (nn.Flatten(0), 3),
        (nn.Flatten(-2), 2),
        (nn.Linear(6, 6), 1),
        (nn.LayerNorm((6, 4)), 2),
        (nn.BatchNorm1d(4, track_running_stats=False), 2),
        (nn.Conv1d(6, 6, 3), 2),  # one sample, of six channels
        (nn.Embedding(9, 4, scale_grad_by_freq=True), 2),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(0)), 2),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), 2),
        (Normalise("mnist"), 3),
        (resnet20(), 4),
        (Derived(4, 4), 2),
        (hooked(), 2),
        (nn.Sequential(nn.Linear(4, 4), replaced()), 2),
    ],
)
def test_where_samples_may_see_each_other_nothing_is_said(module: nn.Module, dims: int) -> None:
    assert keeps_samples_apart(module, dims) is None


def test_a_ready_made_model_with_another_layer_put_in_is_not_known() -> None:
    model = Transformer(7, 1, 2, 4, 8, 0.0)
    model.norm = nn.Softmax(0)  # type: ignore[assignment]
    assert keeps_samples_apart(model, 2) is None
    model.norm = Derived(4, 4)  # type: ignore[assignment]
    assert not is_known(model)


def test_what_may_draw() -> None:
    assert all(is_known(m) for m in (resnet20(), WideResNet(10, 1), mlp(3), cnn(2)))
    assert not any(has_random_layers(m) for m in (resnet20(), nn.Dropout(0.0)))
    for module in (nn.Dropout(0.1), nn.RReLU(), nn.LSTM(2, 2, num_layers=2, dropout=0.1)):
        assert has_random_layers(module)
    assert not any(is_known(m) for m in (Derived(2, 2), hooked(), replaced(), nn.RReLU()))


def test_nothing_is_known_of_a_subclass_which_may_compute_another_loss() -> None:
    class Coupled(ModuleTask):
        def loss_of(self, params: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            return super().loss_of(params, inputs, targets) + inputs.var(0).sum()

    data = Data(Split(torch.randn(8, 3), torch.randint(0, 2, (8,))))
    plain, coupled = (
        kind(nn.Sequential(nn.Linear(3, 2)), "cross_entropy", data, batch_size=2)
        for kind in (ModuleTask, Coupled)
    )
    assert (plain.averages, coupled.averages) == (True, False)

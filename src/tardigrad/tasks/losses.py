"""Losses by name, and what else can be measured from outputs and targets."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from tardigrad.tasks.structure import is_plain

Loss = Callable[[Tensor, Tensor], Tensor]
"""loss(outputs, targets): the mean over the batch, a scalar."""
LEFT_OUT = -100
"""The class of targets that torch's losses leave out of their mean."""


def token_cross_entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    """Cross entropy in nats per token: logits (batch, time, vocabulary), tokens (batch, time)."""
    return F.cross_entropy(logits.flatten(0, -2), tokens.flatten().long())


LOSSES: dict[str, Loss] = {
    "cross_entropy": F.cross_entropy,
    "nll": F.nll_loss,
    "mse": F.mse_loss,
    "token_cross_entropy": token_cross_entropy,
}

DRAW_NOTHING: tuple[Loss, ...] = (
    *LOSSES.values(),
    F.l1_loss,
    F.smooth_l1_loss,
    F.huber_loss,
    F.kl_div,
    F.binary_cross_entropy,
    F.binary_cross_entropy_with_logits,
)


def loss_function(choice: str | Loss) -> Loss:
    if isinstance(choice, str) and choice in LOSSES:
        return LOSSES[choice]
    if isinstance(choice, str) or not callable(choice):
        names = ", ".join(repr(name) for name in LOSSES)
        got = repr(choice) if isinstance(choice, str) else f"a {type(choice).__name__}"
        raise ValueError(
            f"loss must be {names}, 'model' or a function (outputs, targets) -> mean scalar, "
            f"got {got}"
        )
    return choice


def draws_nothing(loss: Loss | None) -> bool:
    """Whether it is known that the loss draws no random numbers: torch's own, and ours; None is the
    model's, of which nothing is known."""
    if isinstance(loss, nn.Module):
        return type(loss).__module__ == nn.modules.loss.__name__ and is_plain(loss)
    return any(loss is known for known in DRAW_NOTHING)


def weighs_equally(loss: Loss, outputs_dims: int, targets: Tensor) -> bool:
    """Whether it is known to be a mean in which each sample weighs the same, whatever the others.

    Not so for a user's own function or with class weights, where targets say "leave this one out"
    (negative classes), and where the squared error would set each output beside each target.
    """
    if not any(loss is known for known in LOSSES.values()):
        return False
    if loss is F.mse_loss:
        return outputs_dims == targets.dim()
    return targets.is_floating_point() or not bool((targets < 0).any())


def left_out(loss: Loss | None) -> int | None:
    """The class of targets that this loss leaves out; None where that is not known."""
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        return loss.ignore_index
    return LEFT_OUT if loss in (F.cross_entropy, F.nll_loss, token_cross_entropy) else None


def targets_counted(loss: Loss | None, targets: object) -> Tensor | None:
    """How many targets the loss takes its mean over, where it is known to leave some out."""
    skipped = left_out(loss)
    if skipped is None or not isinstance(targets, Tensor) or targets.is_floating_point():
        return None
    return (targets != skipped).sum()


def hits(outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Which predictions are right, where targets are classes; None where that has no meaning.

    Classes lie in the last dimension of the outputs, or in dimension 1 as torch's losses have it.
    """
    if targets.is_floating_point() or outputs.dim() != targets.dim() + 1:
        return None
    if outputs.shape[:-1] == targets.shape:
        return outputs.argmax(-1) == targets
    if outputs.shape[:1] + outputs.shape[2:] == targets.shape:
        return outputs.argmax(1) == targets
    return None

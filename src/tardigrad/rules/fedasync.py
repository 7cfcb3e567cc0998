"""FedAsync: mix the model that a worker has come to into the server's."""

from dataclasses import dataclass

from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Correction, Nothing, Now, Push, Signal
from tardigrad.rules.rates import Rate, learning_rate
from tardigrad.rules.rule import Rule
from tardigrad.rules.sgd import Sgd
from tardigrad.rules.weights import BY_DEFAULT, StalenessWeight, check_weight


@dataclass(frozen=True)
class FedAsync(Correction[Nothing, Nothing]):
    """g + (θ − view), and the whole step times s(d).

    Before SGD without momentum at rate α this is θ ← (1 − a) θ + a x with a = α s(d), where
    x = view − g is the model that the worker has come to: θ − a (g + θ − view).

    Args:
        weight: s(d), as `staleness_weighted` has it.

    Trap: it draws θ back to where the worker began, also where g = 0. What others have done since
    is undone by the share a; `staleness_weighted` keeps it.

    Xie, Koyejo and Gupta 2019, Asynchronous Federated Optimization.
    """

    weight: StalenessWeight = BY_DEFAULT

    takes_means = True

    def __post_init__(self) -> None:
        check_weight(self.weight)

    def correct(
        self, theta: Tensor, state: Nothing, own: Nothing, push: Push, now: Now, layout: Layout
    ) -> tuple[Signal, Nothing]:
        away = push.grad + (theta - push.view)
        return Signal(away, away, self.weight.of(push.staleness - 1)), own


def fedasync(
    alpha: Rate = 0.6, weight: StalenessWeight = BY_DEFAULT, weight_decay: float = 0.0
) -> Rule:
    """θ ← (1 − a) θ + a x, a = α s(d); x = view − g, the worker's model

    Xie, Koyejo and Gupta 2019; in a group, the mean of what each would change. Where
    nothing is late it is `sgd` at rate α. The trap in it is told at `FedAsync`.

    Args:
        alpha: α, the share of a model that is not late, at most 1; or a rate, as `lr` elsewhere.
        weight: s(d): polynomial, (d + 1)^−a; hinge, 1 where d ≤ b, else 1 / (a (d − b) + 1); or
            constant, 1.
    """
    rate = learning_rate(alpha)
    require(
        not rate.max > 1,
        f"alpha must be at most 1, which takes the worker's whole model, got {rate.max}",
    )
    return Rule(rate, Sgd(), FedAsync(weight), weight_decay=weight_decay)

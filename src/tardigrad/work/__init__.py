"""What a worker does between a pull and a push; one kind a file."""

from tardigrad.work.clipping import clipped
from tardigrad.work.local_steps import LocalSteps
from tardigrad.work.micro_batches import MicroBatches
from tardigrad.work.one_gradient import OneGradient
from tardigrad.work.work import (
    AnyWork,
    Delivery,
    Interrupted,
    Work,
    by_batch,
    changes_in_place,
    check_unchanged,
    delivered,
    never,
)

WORKS: dict[str, type[AnyWork]] = {
    "gradient": OneGradient,
    "local_steps": LocalSteps,
    "micro_batches": MicroBatches,
}

__all__ = [
    "WORKS",
    "AnyWork",
    "Delivery",
    "Interrupted",
    "LocalSteps",
    "MicroBatches",
    "OneGradient",
    "Work",
    "by_batch",
    "changes_in_place",
    "check_unchanged",
    "clipped",
    "delivered",
    "never",
]

"""The table that window kernels read: for each update, the rows of the buffers that it uses."""

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints

GRAD, VIEW, OWN, OUT = range(4)
"""Columns, in the order in which the kernels' text reads them."""
COLUMNS = 4
NOWHERE = -1


class UpdateTable:
    """Per update: the row of its gradient; of the view that was computed at; whose own rows it
    changes; and the row of the views into which it writes what is sent, or NOWHERE.

    `rows` has one row an update and these COLUMNS; `grad`, `view`, `own` and `out` are its columns,
    to be read and written.
    """

    def __init__(self, updates: int) -> None:
        self.rows: Ints = np.full((updates, COLUMNS), NOWHERE, dtype=np.int64)
        self.grad, self.view = self.rows[:, GRAD], self.rows[:, VIEW]
        self.own, self.out = self.rows[:, OWN], self.rows[:, OUT]

    def on(self, device: torch.device) -> Tensor:
        """For a kernel there; on the CPU, the same memory."""
        return torch.from_numpy(self.rows).to(device)

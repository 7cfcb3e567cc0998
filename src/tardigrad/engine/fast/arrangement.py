"""How a model's tensors lie in one row, as its kernels want them."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from tardigrad.core.layout import Layout

ALIGN = 16
"""Each tensor begins at a multiple of so many numbers: kernels of convolutions and products are
chosen by where tensors lie, and want 16 bytes at least."""


class Arrangement:
    """Each tensor of a layout by its own strides (filters may be channels last), and aligned.

    Rows are gathered from flat vectors in one kernel, and gradients put back in another, however
    many tensors there are. `row`: numbers in a row.
    """

    def __init__(
        self, layout: Layout, strides: Sequence[tuple[int, ...]], device: torch.device
    ) -> None:
        rooms = [-(-size // ALIGN) * ALIGN for size in layout.sizes]
        self._shapes, self._strides = layout.shapes, tuple(strides)
        self._offsets = list(accumulate(rooms, initial=0))
        self.row = self._offsets[-1]
        order = torch.zeros(self.row, dtype=torch.int64)
        back = torch.zeros(layout.size, dtype=torch.int64)
        for i, size in enumerate(layout.sizes):
            begin = layout.offsets[i]
            lies = torch.arange(size).as_strided(self._shapes[i], self._strides[i]).reshape(-1)
            order[self._offsets[i] + lies] = torch.arange(begin, begin + size)
            back[begin : begin + size] = begin + lies
        straight = torch.arange(layout.size)
        moved = not torch.equal(back, straight)
        # None where rows lie as flat vectors do: those are copied without looking anything up.
        self._order = None
        if moved or not torch.equal(order[: layout.size], straight):
            self._order = order.to(device)
        self._back = back.to(device) if moved else None

    @property
    def is_straight(self) -> bool:
        """Whether a flat vector that begins aligned is a row as it is."""
        return self._order is None

    def staged(self, vectors: Tensor, chosen: Tensor) -> Tensor:
        """The chosen vectors, a row of each; vectors may be padded."""
        if self._order is None:
            return vectors.index_select(0, chosen)
        return vectors[chosen[:, None], self._order]

    def tensors_of(self, row: Tensor) -> list[Tensor]:
        """The model's tensors, as views of a row."""
        first = row.storage_offset()
        return [
            row.as_strided(shape, stride, first + offset)
            for shape, stride, offset in zip(
                self._shapes, self._strides, self._offsets[:-1], strict=True
            )
        ]

    def flatten_(self, out: Tensor, pieces: Sequence[Tensor]) -> None:
        """A gradient's pieces as a flat vector.

        They are joined in the order of memory and then looked up, so that a piece that lies as its
        tensor does is copied once.
        """
        flat = []
        for piece, stride in zip(pieces, self._strides, strict=True):
            outermost_first = sorted(range(piece.dim()), key=lambda d: -stride[d])
            flat.append(piece.permute(outermost_first).reshape(-1))
        if self._back is None:
            torch.cat(flat, out=out)
        else:
            torch.index_select(torch.cat(flat), 0, self._back, out=out)

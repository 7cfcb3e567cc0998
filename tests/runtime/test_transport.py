"""How numbers travel: in slots of shared memory, and in pieces that Ray carries."""

import numpy as np
import pytest
import torch

from tardigrad.runtime.arena import Address
from tardigrad.runtime.messages import Released, Ticket
from tardigrad.runtime.transport import (
    PIECE_BYTES,
    Shelf,
    Taken,
    Tray,
    answer,
    arguments,
    count_pieces,
    heard,
    received,
)


@pytest.mark.parametrize("size", [0, 24_000, 24_001, 1_000_000, 1_200_001])
def test_what_ray_carries_in_pieces_is_put_together_again(size):
    """float32: 24,000 fit into a piece and 1,200,000 into as many pieces as there may be."""
    array = np.arange(size, dtype=np.float32)
    array.flags.writeable = False  # as Ray hands arrays over
    first, *pieces = arguments(array)
    assert len(pieces) == count_pieces(array.nbytes) == {24_001: 2, 1_000_000: 42}.get(size, 0)
    assert all(piece.nbytes <= PIECE_BYTES for piece in pieces)
    packed = [(Ticket(0, 1), None), (Released(0, 1, 1), array)]
    results = answer(packed, len(pieces))
    said = heard(results if pieces else [results])
    assert [what for what, _ in said] == [what for what, _ in packed]
    assert said[0][1] is None
    for payload in (received(first, pieces), said[1][1]):
        out = torch.empty(size)
        Taken(0).copy(payload, out)
        assert torch.equal(out, torch.arange(size, dtype=torch.float32))
        assert torch.equal(Taken(0).look(payload), out)


def test_an_answer_without_numbers_has_empty_pieces():
    packed = [(Ticket(0, 1), None)]
    assert heard(answer(packed, 3)) == packed
    assert len(answer(packed, 3)) == 4


def test_a_version_made_in_its_place_is_not_copied_and_any_other_is_copied_there():
    shelf = Shelf(torch.zeros(4), shared=True)
    assert shelf.place() is None  # nobody is near
    shelf.connect(0, near=True)
    place = shelf.place()
    place.fill_(1.0)
    assert shelf.keep(1, place) is place
    assert torch.equal(Taken(0).look(shelf.put(0, 1, place)), torch.ones(4))
    second = shelf.place()
    kept = shelf.keep(2, torch.full((4,), 2.0))
    assert kept is second
    assert torch.equal(Taken(0).look(shelf.put(0, 2, kept)), torch.full((4,), 2.0))
    assert torch.equal(place, torch.ones(4))
    shelf.close()


def test_a_version_that_is_kept_stays_however_often_it_was_told():
    """As after a resume: the version was made by an earlier process."""
    shelf = Shelf(torch.zeros(4), shared=True)
    shelf.connect(0, near=True)
    version = torch.full((4,), 7.0)
    kept = shelf.share(0, 7, version)
    assert shelf.share(0, 7, kept) is kept
    first, second = shelf.put(0, 7, kept), shelf.put(0, 7, kept)
    reader = Taken(0)
    assert torch.equal(reader.look(first), version)
    reader.done(first)  # and with it the flag of the second
    shelf.place().fill_(8.0)
    assert torch.equal(reader.look(second), version)
    reader.done(second)
    del kept
    shelf.place().fill_(9.0)  # nobody wants it any more, so its memory is used again
    assert torch.equal(reader.look(second), torch.full((4,), 9.0))
    shelf.close()


def test_a_gradient_goes_through_its_slot_only_to_who_was_and_is_near():
    tray = Tray(6, torch.float32, 2, shared=True)
    tray.connect(0, near=True)
    tray.connect(1, near=True)
    laid = tray.put(torch.arange(6.0))
    assert isinstance(laid.payload(1, slice(3, 6)), Address)
    tray.connect(1, near=False)  # it came back on another node
    assert laid.payload(1, slice(3, 6)).tolist() == [3.0, 4.0, 5.0]
    tray.connect(1, near=True)
    tray.connect(0, near=False)
    later = tray.put(torch.ones(6))
    tray.connect(0, near=True)
    assert later.payload(0, slice(0, 3)).tolist() == [1.0, 1.0, 1.0]
    tray.close()

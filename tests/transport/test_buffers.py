"""Versions and gradients in shared memory: who reads what, and when memory is used again."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from tardigrad.transport.arena import PAGE, SharedSlot, SlotAddress
from tardigrad.transport.buffers import (
    NEAR_WORKERS,
    GradientBuffers,
    PayloadReader,
    SlotOrArray,
    VersionBuffers,
)
from tests.transport.transport_peers import Client, Echo, until


def test_a_version_made_in_its_place_is_not_copied_and_any_other_is_copied_there() -> None:
    versions = VersionBuffers(torch.zeros(4), shared=True)
    versions.connect(0, near=True)
    place = versions.place()
    place.fill_(1.0)
    assert versions.keep(1, place) is place
    assert torch.equal(PayloadReader(0).look(versions.put(0, 1, place)), torch.ones(4))
    second = versions.place()
    kept = versions.keep(2, torch.full((4,), 2.0))
    assert kept is second
    assert torch.equal(PayloadReader(0).look(versions.put(0, 2, kept)), torch.full((4,), 2.0))
    assert torch.equal(place, torch.ones(4))
    assert versions.bytes_out == 32
    versions.close()


def test_a_version_that_is_kept_stays_however_often_it_was_told() -> None:
    """As after a resume: the version was made by an earlier process."""
    versions = VersionBuffers(torch.zeros(4), shared=True)
    versions.connect(0, near=True)
    version = torch.full((4,), 7.0)
    kept = versions.share(0, 7, version)
    assert versions.share(0, 7, kept) is kept
    first, second = versions.put(0, 7, kept), versions.put(0, 7, kept)
    reader = PayloadReader(0)
    assert torch.equal(reader.look(first), version)
    reader.done(first)  # and with it the flag of the second
    fill_next(versions, 8.0)
    assert torch.equal(reader.look(second), version)
    reader.done(second)
    del kept
    fill_next(versions, 9.0)  # nobody wants it any more, so its memory is used again
    assert torch.equal(reader.look(second), torch.full((4,), 9.0))
    versions.close()


def fill_next(versions: VersionBuffers, value: float) -> None:
    versions.place().fill_(value)


def test_without_near_workers_memory_is_used_again_once_nobody_holds_a_version() -> None:
    versions = VersionBuffers(torch.zeros(20_000), shared=False)
    place = versions.place()
    at = place.data_ptr()
    assert versions.keep(1, place) is place
    on_its_way = versions.put(0, 1, versions.share(0, 1, place))
    assert isinstance(on_its_way, np.ndarray)
    del place  # the shard has gone on, the frame is not sent yet
    other = versions.place()
    assert other.data_ptr() != at
    del on_its_way
    assert versions.place().data_ptr() == at
    versions.close()


def test_a_version_that_a_worker_reads_is_not_overwritten_until_it_is_done_or_gone() -> None:
    versions = VersionBuffers(torch.zeros(4), shared=True)
    for worker in (0, 1):
        versions.connect(worker, near=True)
    told = versions.put(0, 1, versions.keep(1, torch.ones(4)))
    versions.put(1, 1, torch.ones(4))
    reader = PayloadReader(0)
    reader.done(told)
    for _ in range(3):
        fill_next(versions, 5.0)
    assert torch.equal(reader.look(told), torch.ones(4))  # worker 1 still reads it
    versions.connect(1, near=False)  # it died, and came back on another node
    fill_next(versions, 6.0)
    assert torch.equal(reader.look(told), torch.full((4,), 6.0))
    versions.close()


def test_a_far_worker_gets_an_array_whose_memory_stays_while_it_is_on_its_way() -> None:
    versions = VersionBuffers(torch.zeros(4), shared=True)
    versions.connect(0, near=True)
    versions.connect(1, near=False)
    array = versions.put(1, 1, versions.keep(1, torch.ones(4)))
    assert isinstance(array, np.ndarray)
    for _ in range(3):
        fill_next(versions, 5.0)
    assert array.tolist() == [1.0] * 4
    versions.close()


def test_a_worker_whose_number_has_no_flag_is_sent_arrays() -> None:
    """Its flag would lie among the numbers."""
    versions = VersionBuffers(torch.zeros(4), shared=True)
    versions.connect(0, near=True)
    kept = versions.keep(1, torch.ones(4))
    for worker in (NEAR_WORKERS - 1, NEAR_WORKERS):
        versions.connect(worker, near=True)
        versions.connect(worker, near=True)
    assert isinstance(versions.put(NEAR_WORKERS - 1, 1, kept), SlotAddress)
    assert isinstance(versions.put(NEAR_WORKERS, 1, kept), np.ndarray)
    versions.connect(NEAR_WORKERS, near=False)
    assert torch.equal(kept, torch.ones(4))
    versions.close()


def test_a_gradient_goes_through_its_slot_only_to_who_was_and_is_near() -> None:
    gradients = GradientBuffers(6, torch.float32, 2, shared=True)
    gradients.connect(0, near=True)
    gradients.connect(1, near=True)
    put = gradients.put(torch.arange(6.0))
    address = put.payload(1, slice(3, 6))
    assert isinstance(address, SlotAddress)
    assert PayloadReader(1).look(address, slice(3, 6)).tolist() == [3.0, 4.0, 5.0]
    gradients.connect(1, near=False)  # it came back on another node
    assert listed(put.payload(1, slice(3, 6))) == [3.0, 4.0, 5.0]
    gradients.connect(1, near=True)
    gradients.connect(0, near=False)
    later = gradients.put(torch.ones(6))
    gradients.connect(0, near=True)
    assert listed(later.payload(0, slice(0, 3))) == [1.0, 1.0, 1.0]
    gradients.close()


def listed(payload: SlotOrArray) -> object:
    assert isinstance(payload, np.ndarray)
    return payload.tolist()


def test_without_shared_memory_everything_is_an_array() -> None:
    gradients = GradientBuffers(2, torch.float64, 1, shared=False)
    gradients.connect(0, near=True)
    payload = gradients.put(torch.ones(2, dtype=torch.float64)).payload(0, slice(0, 2))
    assert listed(payload) == [1.0, 1.0]
    out = torch.zeros(2, dtype=torch.float64)
    PayloadReader(0).copy(payload, out)
    assert out.tolist() == [1.0, 1.0]
    assert PayloadReader(0).there(payload)


def test_an_array_that_came_through_a_connection_is_read_in_its_place(echo: Echo) -> None:
    client = Client(echo.address)
    _, (array,) = client.ask([], [np.arange(5, dtype=np.float32)])
    looked = PayloadReader(0).look(array)
    assert looked.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert looked.data_ptr() == array.ctypes.data


def test_a_version_that_is_computed_at_stays_until_the_next_one_is() -> None:
    versions = VersionBuffers(torch.zeros(4), shared=True)
    versions.connect(0, near=True)
    reader = PayloadReader(0, views=True)

    def told(version: int) -> SlotOrArray:
        """Nothing of it is kept here, as by a shard of which the worker has left."""
        versions.place().fill_(version)
        kept = versions.keep(version, torch.full((4,), float(version)))
        return versions.put(0, version, kept)

    first = told(1)
    view = viewed(reader, first)
    reader.done(first)
    second, third = told(2), told(3)
    assert len({first, second, third}) == 3
    assert view.tolist() == [1.0] * 4
    reader.done(second)  # never looked at
    assert told(4) == second
    view = viewed(reader, third)
    reader.done(third)
    assert told(5) == first
    assert view.tolist() == [3.0] * 4
    assert viewed(reader, np.zeros(4, np.float32)).tolist() == [0.0] * 4
    assert told(6) == third
    versions.close()


def viewed(reader: PayloadReader, payload: SlotOrArray) -> torch.Tensor:
    view = reader.view(payload)
    assert view is not None
    return view


def test_of_code_that_may_write_to_it_only_what_came_in_a_frame_is_the_view() -> None:
    versions = VersionBuffers(torch.zeros(4), shared=True)
    versions.connect(0, near=True)
    address = versions.put(0, 1, versions.share(0, 1, torch.ones(4)))
    assert PayloadReader(0).view(address) is None
    assert viewed(PayloadReader(0), np.ones(4, np.float32)).tolist() == [1.0] * 4
    versions.close()


def test_who_has_left_pins_no_version() -> None:
    versions = VersionBuffers(torch.zeros(4), shared=True)
    told = []
    for worker in range(3):
        versions.connect(worker, near=True)
        versions.place().fill_(worker)
        kept = versions.keep(worker, torch.full((4,), float(worker)))
        told.append(versions.put(worker, worker, kept))
        viewed(PayloadReader(worker, views=True), told[-1])
        del kept
        versions.connect(worker, near=False)
    assert len(set(told)) == 1
    versions.close()


def test_what_is_written_to_a_view_nobody_else_sees() -> None:
    versions = VersionBuffers(torch.zeros(4), shared=True)
    versions.connect(0, near=True)
    kept = versions.share(0, 1, torch.ones(4))
    address = versions.put(0, 1, kept)
    view = viewed(PayloadReader(0, views=True), address)
    assert view.tolist() == [1.0] * 4
    view.add_(1)
    assert view.tolist() == [2.0] * 4
    assert kept.tolist() == PayloadReader(1).look(address).tolist() == [1.0] * 4
    versions.close()


OWNER = """
import sys, torch
from tardigrad.transport.arena import SharedSlot
slot = SharedSlot.make(3, torch.float32, 1)
slot.vector.fill_(2.5)
slot.claim(0)
print(*slot.address.plain(), flush=True)
sys.stdin.readline()
print(slot.free, flush=True)
sys.stdin.readline()
"""


def test_another_process_finds_a_slot_until_its_owner_has_ended() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    *numbers, nonce, dtype = process.stdout.readline().split()
    address = SlotAddress.from_plain([*map(int, numbers), nonce, dtype])
    early, late = PayloadReader(0), PayloadReader(0)
    assert early.look(address).tolist() == [2.5, 2.5, 2.5]
    early.done(address)
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "True\n"
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert early.there(address)  # it has it mapped
    assert not late.there(address)
    early.forget(address.pid)
    assert not early.there(address)


def test_another_file_under_the_same_number_is_not_taken_for_the_slot(tmp_path: object) -> None:
    slot = SharedSlot.make(1000, torch.float32, 1)
    address = slot.address
    other = os.open(f"{tmp_path}/other", os.O_RDWR | os.O_CREAT)
    slot.close()
    os.dup2(other, address.file)
    assert not PayloadReader(0).there(address)  # it is shorter
    os.ftruncate(other, address.length)
    assert not PayloadReader(0).there(address)
    os.close(other)
    os.close(address.file)


def test_an_address_survives_as_plain_data_and_nothing_else_is_one() -> None:
    address = SlotAddress(12, 3, 8192, 4096, b"\x00\xff123456", "float32")
    plain = address.plain()
    assert SlotAddress.from_plain(plain) == address
    wrong = [
        None,
        plain[:5],
        [-1, *plain[1:]],
        [True, *plain[1:]],
        [*plain[:3], 9000, *plain[4:]],
        [*plain[:4], "zz", plain[5]],
        [*plain[:5], "load"],
    ]
    for each in wrong:
        with pytest.raises(ValueError):  # noqa: PT011
            SlotAddress.from_plain(each)


def test_a_slot_holds_what_rules_take() -> None:
    with pytest.raises(ValueError, match="float16 cannot be shared: float32, float64 can"):
        SharedSlot.make(3, torch.float16, 1)
    slot = SharedSlot.make(3, torch.float64, PAGE)
    assert slot.address.data_at == 2 * PAGE
    slot.close()


def test_a_lent_slot_is_free_again_when_the_last_view_of_it_has_gone() -> None:
    slot = SharedSlot.make(8, torch.float32, 1)
    view = slot.lend()[2:].numpy()
    assert not slot.free
    holding, go_on = threading.Event(), threading.Event()

    def hold(array: object) -> None:
        holding.set()
        go_on.wait()

    thread = threading.Thread(target=hold, args=(view[1:],))
    thread.start()
    del view
    holding.wait()
    assert not slot.free
    go_on.set()
    thread.join()
    del thread
    until(lambda: slot.free)
    slot.close()


def test_a_gradient_that_is_told_again_does_not_give_the_next_ones_memory_free() -> None:
    """A worker that does not wait for this shard has pushed the next when the repetition comes."""
    gradients, every = GradientBuffers(4, torch.float32, 1, shared=True), slice(0, 4)
    gradients.connect(0, near=True)
    shard = PayloadReader(0)
    first = gradients.put(torch.ones(4))
    told, again = first.payload(0, every), first.payload(0, every)
    shard.done(told)
    waiting = gradients.put(torch.full((4,), 2.0)).payload(0, every)
    assert waiting == told  # its memory is used again
    shard.done(again)
    gradients.put(torch.full((4,), 3.0))
    assert torch.equal(shard.look(waiting), torch.full((4,), 2.0))
    gradients.close()

"""The socket between a worker and a shard: what it carries, whom it refuses, what it leaves."""

import math
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from in_process import make_setup

import tardigrad as tg
from tardigrad import rules
from tardigrad.runtime.arena import Address
from tardigrad.runtime.channel import RayChannel, SocketChannel, open_channel
from tardigrad.runtime.connection import UnixConnection, abstract
from tardigrad.runtime.control import Refused
from tardigrad.runtime.door import Door
from tardigrad.runtime.messages import NO_ROW, Call, PushHeader, Released, Ticket
from tardigrad.runtime.setup import Life, Place
from tardigrad.runtime.shard import ShardHost
from tardigrad.runtime.standing import WorkerAddress
from tardigrad.runtime.wire import LENGTHS, Arrays, BadFrame, split_frames, write_frame
from tardigrad.runtime.worker import Worker
from tardigrad.tasks import TASKS

LIFE = Life(7, 0)
SLOT = Address(12, 3, 8192, 4096, b"\x00\xff123456", "float32")


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


class Shard:
    """Answers every call with its number; refuses requests below 0."""

    def __init__(self):
        self.calls = []
        self.door = Door(self.call)

    def call(self, life, call):
        self.calls.append((life, call))
        if call.kind == "request" and call.what[1] < 0:
            raise Refused("request refused: worker 0 asks for a version below 0")
        if call.kind == "request" and call.what[1] > 10**6:
            raise KeyError("no such version")
        return [(Ticket(0, len(self.calls)), None)]


@pytest.fixture
def shard():
    before = open_files()
    shard = Shard()
    yield shard
    shard.door.close()
    until(lambda: open_files() <= before)


class Ears:
    """A worker's channel and everything that came through it, in order."""

    def __init__(self, shard, life=LIFE, worker=0):
        self.came = []
        self.channel = SocketChannel(shard.door.name, life, worker, self.came.append)

    def ask(self, call):
        before = len(self.came)
        self.channel.call(call, self.came.append)
        until(lambda: len(self.came) > before)
        return self.came[-1]


def frames_of(connection):
    """All that come, until the peer has gone."""
    out = []
    while (frames := connection.receive()) is not None:
        out += frames
    connection.finish()
    return out


FLOATS = [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 1 / 3]


def test_every_float_survives_exactly():
    (frame,) = split_frames(bytearray(write_frame("push", FLOATS)))
    assert struct.pack("8d", *frame.what) == struct.pack("8d", *FLOATS)


def test_slots_and_arrays_survive():
    arrays = Arrays()
    given = [np.array([[1.5, math.nan]], np.float32), np.array(3, np.int64), np.zeros(0, bool)]
    what = [arrays.payload(SLOT), arrays.payload(None), *(arrays.payload(a) for a in given)]
    (frame,) = split_frames(bytearray(write_frame("push", what, arrays)))
    slot, nothing, *came = [frame.payload(plain) for plain in frame.what]
    assert slot == SLOT
    assert nothing is None
    for array, expected in zip(came, given, strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()


def test_a_call_comes_as_it_was_made_and_is_answered(shard):
    push = PushHeader(5, 0, 4, 3, (2, 9), 0.25, 0.5, math.inf, True, 1)
    buffers = (np.arange(3.0), np.array(7))
    ears = Ears(shard)
    assert ears.ask(Call("push", tuple(push), SLOT, buffers)) == [(Ticket(0, 1), None)]
    ((life, call),) = shard.calls
    assert life == LIFE
    assert (call.kind, PushHeader(*call.what), call.payload) == ("push", push, SLOT)
    assert [a.tolist() for a in call.extra] == [[0.0, 1.0, 2.0], 7]


def test_an_error_is_raised_at_the_worker_by_its_name(shard):
    ears = Ears(shard)
    refused = ears.ask(Call("request", (0, -1)))
    assert isinstance(refused, Refused)
    assert str(refused) == "request refused: worker 0 asks for a version below 0"
    assert repr(ears.ask(Call("request", (0, 10**7)))) == repr(
        RuntimeError("KeyError: 'no such version'")
    )
    assert ears.ask(Call("ticket", (0,))) == [(Ticket(0, 3), None)]  # and it goes on


def test_order_is_kept_though_nobody_reads_for_a_while(shard):
    """More than a socket holds: whoever delivers does not wait for it."""
    ears = Ears(shard)
    many = 20_000
    stopped, go_on = threading.Event(), threading.Event()

    def slow(said):
        stopped.set()
        go_on.wait()

    ears.channel.call(Call("ticket", (0,)), slow)
    stopped.wait()
    for version in range(many):
        shard.door.deliver(0, (Released(0, version, version), SLOT))
    assert not ears.came
    go_on.set()
    until(lambda: len(ears.came) == many)
    assert [said[0][0].version for said in ears.came] == list(range(many))


class Meddler:
    """A lock after whose release, in the thread that sends the rest, more is sent at once."""

    def __init__(self, connection):
        self.connection, self.lock = connection, connection._sending
        self.more = [frame(1)]

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        here = threading.current_thread() is threading.main_thread()
        if not here and not self.connection._backlog and self.more:
            self.connection.send(self.more.pop())


def frame(number):
    return write_frame("deliver", [number, "x" * 500_000])


def test_two_threads_never_send_the_same_rest():
    """What could not be sent at once is just gone as more comes that cannot be sent at once."""
    sender, reader = map(UnixConnection, socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    sender._sending = Meddler(sender)
    sender.send(frame(0))
    came = []
    while len(came) < 2:
        came += [frame.what[0] for frame in reader.receive()]
    sender.send(frame(2))
    while len(came) < 3:
        came += [frame.what[0] for frame in reader.receive()]
    assert came == [0, 1, 2]
    sender.finish()
    reader.finish()


def test_what_comes_together_with_the_welcome_is_heard():
    name = "tardigrad-test-of-welcome"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(abstract(name))
    listening.listen()
    came = []

    def welcome():
        peer, _ = listening.accept()
        released = Arrays().packed([(Released(0, 5, 0), None)])
        peer.sendall(write_frame("welcome", []) + write_frame("deliver", released))
        until(lambda: came)
        peer.close()

    threading.Thread(target=welcome).start()
    SocketChannel(name, LIFE, 0, came.append)
    until(lambda: came)
    listening.close()
    assert came == [[(Released(0, 5, 0), None)]]


TOO_LONG = LENGTHS.pack(2**31, 0)
BAD = {
    "no frame": (b"GET / HTTP/1.1\r\n\r\n", "bytes of text, at most"),
    "no JSON": (LENGTHS.pack(4, 0) + b"{{{{", "cannot be read"),
    "no list": (LENGTHS.pack(2, 0) + b"{}", "cannot be read"),
    "too long": (TOO_LONG, "2147483648 bytes of text, at most"),
    "no such call": (write_frame("save", [[1], None, []]), "call of 'save' that is none"),
    "too few fields": (write_frame("push", [[1, 2], None, []]), r"none \(2 fields\)"),
    "no such array": (write_frame("ticket", [[0], 3, []]), "call of 'ticket' that is none"),
    "no slot": (write_frame("ticket", [[0], [1, 2], []]), "call of 'ticket' that is none"),
    "objects": (LENGTHS.pack(25, 8) + b'["ticket",[],[["|O",[1]]]]'[:25], "cannot be read"),
    "missing bytes": (LENGTHS.pack(26, 4) + b'["ticket",[],[["<f4",[9]]]]'[:26], "cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_frame_is_told_and_the_door_closed_on_it(shard, name):
    sent, why = BAD[name]
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(abstract(shard.door.name))
    peer.sendall(write_frame("hello", [*LIFE, 3]) + sent + bytes(8))
    connection = UnixConnection(peer)
    welcome, told = frames_of(connection)
    assert [welcome.kind, told.kind] == ["welcome", "error"]
    with pytest.raises(BadFrame, match=why):
        raise BadFrame(told.what[1])
    assert shard.calls == []
    assert Ears(shard).ask(Call("ticket", (0,))) == [(Ticket(0, 1), None)]


def test_who_does_not_say_who_comes_is_not_let_in(shard):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(abstract(shard.door.name))
    peer.sendall(write_frame("ticket", [[0], None, []]))
    (told,) = frames_of(UnixConnection(peer))
    assert "the first frame must say who comes" in told.what[1]


def test_frames_come_whole_however_they_are_cut():
    sent = [write_frame("ticket", [[worker], None, []]) for worker in range(20)]
    data, came = bytearray(), []
    for byte in b"".join(sent):
        data.append(byte)
        came += split_frames(data)
    assert [frame.what[0] for frame in came] == [[worker] for worker in range(20)]
    assert not data


def test_an_earlier_life_is_not_let_in_again(shard):
    later = Ears(shard, Life(7, 2))
    Ears(shard, Life(7, 1))
    assert shard.door.reaches(0, 2)
    assert later.ask(Call("ticket", (0,)))


VISITOR = """
import os, socket, sys
os.setuid(65534)
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(10)
peer.connect(bytes.fromhex(sys.argv[1]))
try:
    peer.sendall(bytes.fromhex(sys.argv[2]))
    print(len(peer.recv(100)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_not_let_in(shard):
    hello = write_frame("hello", [*LIFE, 0])
    arguments = [abstract(shard.door.name).hex(), hello.hex()]
    told = subprocess.run(
        [sys.executable, "-c", VISITOR, *arguments], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "0"
    assert not shard.door.reaches(0, 0)


PEER = """
import sys, time
from tardigrad.runtime.channel import SocketChannel
from tardigrad.runtime.door import Door
from tardigrad.runtime.setup import Life
if sys.argv[1:]:
    channel = SocketChannel(sys.argv[1], Life(7, 0), 0, print)
    print("in", flush=True)
else:
    print(Door(lambda life, call: time.sleep(60)).name, flush=True)
time.sleep(60)
"""


def other_process(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", PEER, *arguments], stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_worker_is_noticed(shard):
    process, _ = other_process(shard.door.name)
    until(lambda: shard.door.reaches(0, 0))
    kill(process)
    until(lambda: not shard.door.reaches(0, 0))
    shard.door.deliver(0, (Ticket(0, 1), None))  # nobody is there, and nothing happens


def test_a_killed_shard_answers_nothing_and_leaves_nothing():
    before = open_files()
    process, name = other_process()
    came = []
    channel = SocketChannel(name, LIFE, 0, came.append)
    channel.call(Call("ticket", (0,)), came.append)
    assert name in names()
    kill(process)
    assert name not in names()
    channel.call(Call("ticket", (0,)), came.append)
    late = SocketChannel(name, LIFE, 0, came.append)  # the driver will bring it back
    late.call(Call("ticket", (0,)), came.append)
    until(lambda: open_files() <= before)
    assert came == []


def names():
    with open("/proc/net/unix") as file:
        return file.read()


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_when_both_have_closed():
    before = open_files()
    shard = Shard()
    ears = [Ears(shard, worker=w) for w in range(5)]
    ears[0].channel.close()
    shard.door.show_out(1)
    shard.door.close()
    until(lambda: open_files() <= before)
    until(lambda: shard.door.name not in names())


def test_near_workers_make_no_ray_calls(ray_here, tmp_path):
    """There is no actor behind these handles, so that a Ray call would be an error."""
    task = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
    rule = rules.RULES["gap_aware"](lr=0.05)
    setup = make_setup(task, rule, tg.Sync(), tmp_path, workers=2, shards=2, updates=30)
    hosts = [ShardHost(), ShardHost()]
    places = [host.prepare(setup, shard, 0) for shard, host in enumerate(hosts)]
    workers = [Worker(), Worker()]
    threads = []
    for number, worker in enumerate(workers):
        here = worker.prepare(setup, number, 0)
        worker.connect([(None, 0, place) for place in places])
        for host in hosts:
            host.connect(number, WorkerAddress(None, 0, here))
    for number, worker in enumerate(workers):
        threads.append(threading.Thread(target=worker.run, args=(0, number, [0, 0])))
        threads[-1].start()
    assert [host.watch(30) for host in hosts] == [30, 30]
    for worker, thread in zip(workers, threads, strict=True):
        worker.stop()
        thread.join()
    thetas = [host.final()[0] for host in hosts]
    assert not torch.equal(torch.cat(thetas), task.start())
    until(lambda: not any(place.door in names() for place in places))


def test_the_last_words_of_an_earlier_run_are_not_heard(ray_here, tmp_path):
    task = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
    first = make_setup(task, rules.RULES["sgd"](lr=0.1), tg.Sync(), tmp_path, shards=1)
    worker, nowhere = Worker(), Place.here("tardigrad-nowhere")
    told = []
    for setup in (first, replace(first, run=first.run + 1)):
        worker.prepare(setup, 0, 0)
        worker.connect([(None, 0, nowhere)])
        told.append(worker._peers[0].channel._delivered)
    earlier, now = told
    earlier([(Released(0, 1, 1), None)])
    earlier(RuntimeError("a bad frame"))
    assert not worker._peers[0].early
    assert worker._begins.empty()
    now([(Released(0, 1, 1), None)])
    assert worker._peers[0].early


def test_releases_that_come_before_the_work_begins_are_neither_lost_nor_kept(ray_here, tmp_path):
    """A worker died at its first step when shard 1 had nothing of it: who replaces it is sent
    version 0 of shard 1 again, and then all that follows, perhaps before it is told to run."""
    task = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
    setup = make_setup(task, rules.RULES["sgd"](lr=0.1), tg.Sync(), tmp_path)
    worker, nowhere = Worker(), Place.here("tardigrad-nowhere")
    worker.prepare(setup, 0, incarnation=1)
    worker.connect([(None, 0, nowhere), (None, 0, nowhere)])
    versions = [task.start()[setup.sharding.slice(shard)].numpy() for shard in (0, 1)]
    for shard, version, sequence in ((1, 1, 1), (1, 0, 0), (0, 1, 1)):
        released = Released(0, version, sequence, row=3)
        worker._peers[shard].channel._delivered([(released, versions[shard])])
    thread = threading.Thread(target=worker.run, args=(1, NO_ROW, [0, 0]))
    thread.start()
    until(lambda: worker.where().pushed == 1)
    assert not any(peer.early for peer in worker._peers)
    worker.stop()
    thread.join()


def test_a_row_is_not_used_again_by_who_replaces_a_worker(ray_here, tmp_path):
    """The dead one had not yet heard a broadcast that tells of the row it was computing."""
    task = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
    policy = tg.Partial(push=2, pull=0.5)
    setup = make_setup(task, rules.RULES["sgd"](lr=0.1), policy, tmp_path)
    worker, nowhere = Worker(), Place.here("tardigrad-nowhere")
    worker.prepare(setup, 0, incarnation=1)
    worker.connect([(None, 0, nowhere), (None, 0, nowhere)])
    thread = threading.Thread(target=worker.run, args=(7, NO_ROW, [5, 5], 20), daemon=True)
    thread.start()
    versions = [task.start()[setup.sharding.slice(shard)].numpy() for shard in (0, 1)]

    def release(shard, sequence, row):
        released = Released(0, sequence, sequence, row)
        worker._peers[shard].channel._delivered([(released, versions[shard])])

    release(0, 6, row=20)
    release(1, 6, row=NO_ROW)
    until(lambda: any(asked.kind == "ticket" for asked in worker._peers[0].unanswered.values()))
    release(0, 7, row=23)
    until(lambda: worker.where().pushed == 7)
    assert worker._row == 23
    worker._peers[0].channel._delivered([(Ticket(0, 24), None)])  # shard 0 has let it go on
    worker.stop()
    thread.join()


def test_far_workers_and_those_that_share_nothing_call_by_ray(ray_here, tmp_path):
    here = Place.here()
    elsewhere = here._replace(node="another", door="tardigrad-of-another")
    for place in (here, elsewhere):
        channel = open_channel(None, place, here, LIFE, 0, print)
        assert isinstance(channel, RayChannel)
        channel.close()
    task = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
    setup = make_setup(
        task, rules.RULES["sgd"](lr=0.1), tg.Async(), tmp_path, workers=1, shards=1,
        shared_memory=False,
    )  # fmt: skip
    host = ShardHost()
    assert host.prepare(setup, 0, 0).door == ""
    host.final()


def test_an_error_in_hearing_an_answer_is_told(monkeypatch):
    """A policy's, say: else the worker would wait for ever for what nobody listens to."""
    told = []

    def answered(said):
        told.append(said)
        if not isinstance(said, BaseException):
            raise KeyError("a policy's own")

    monkeypatch.setattr("tardigrad.runtime.channel.ray.get", lambda results: results)
    method = SimpleNamespace(remote=lambda *call: [(Ticket(0, 1), None)])
    handle = SimpleNamespace(call_by_ray=SimpleNamespace(options=lambda **given: method))
    channel = RayChannel(handle, LIFE)
    channel.call(Call("ticket", (0,)), answered)
    until(lambda: len(told) == 2)
    channel.close()
    assert isinstance(told[1], KeyError)


def test_what_a_completed_gradient_shows_to_be_heard_is_not_sent_again(tmp_path):
    """The version may be gone by then: nobody reads it any more."""
    task = TASKS["logistic_regression"](features=5, train_size=60, validation=0)
    setup = make_setup(
        task, rules.RULES["sgd"](lr=0.1), tg.Async(), tmp_path, workers=2, shards=1,
        shared_memory=False,
    )  # fmt: skip
    told = []
    deliver = SimpleNamespace(remote=lambda life, shard, what, *numbers: told.append(what.version))
    host, grad = ShardHost(), np.ones(task.layout.size, dtype=np.float32)
    place = host.prepare(setup, 0, 0)
    for worker in range(2):
        host.connect(worker, WorkerAddress(SimpleNamespace(deliver=deliver), 0, place))
    for worker in range(2):
        push = PushHeader(worker, worker, 0, 0, (0,), 0.0, 0.0, 1.0, True, 0)
        host.call(Life(setup.run, 0), "push", tuple(push), grad)
    assert host.connect(0, WorkerAddress(SimpleNamespace(deliver=deliver), 1, place)).heard == 0
    # Its first life had heard version 1 and pushed, and only another shard got that gradient.
    half = PushHeader(2, 0, 1, 1, (1,), 0.0, 0.0, 1.0, True, 0)
    host.complete(tuple(half), grad, ())
    told.clear()
    host.resend(0)
    assert 1 not in told
    host.final()

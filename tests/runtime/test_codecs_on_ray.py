"""Codecs on Ray: encoded bytes travel, runs are recorded and replayed, processes killed."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Sharding
from tardigrad.links import Encoded, SliceOf
from tardigrad.protocol.admission import Refused
from tardigrad.protocol.messages import FromWorker, PushHeader
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.setup import RunSetup
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.runtime.encoding import decode_from_worker, encode_from_worker
from tardigrad.runtime.shard_process import ShardProcess, shard_origin
from tardigrad.tasks import TASKS
from tardigrad.transport.arena import SlotAddress
from tardigrad.transport.frames import FrameError
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays
from tests.runtime.spare_pool import SparePool

TASK = TASKS["logistic_regression"]()
RULE = rules.sgd(lr=0.05)
TIMES = tg.Gamma(workers=3, mean_s=0.01)
LINKS: dict[str, tg.Link] = {
    "top_k": tg.Full(codec=tg.TopK(0.01)),
    "top_k behind a gate": tg.Every(push=3, codec=tg.TopK(0.01)),
    "int8 without feedback behind a gate": tg.Every(push=2, codec=tg.Int8(error_feedback=False)),
    "random_k": tg.Full(codec=tg.RandomK(0.05)),
    "sign": tg.Full(codec=tg.Sign()),
}


KILLED = ("top_k", "int8 without feedback behind a gate")
"""One with an error and one without; the others under stress."""


@pytest.mark.parametrize(
    ("name", "kill"),
    [
        *((name, False) for name in LINKS),
        *((name, True) for name in KILLED),
        *(pytest.param(n, True, marks=pytest.mark.stress) for n in LINKS if n not in KILLED),
    ],
)
def test_replays_bit_for_bit(name: str, kill: bool, pool: SparePool, tmp_path: Path) -> None:
    """A worker is killed between its pushes: one shard has the gradient, and what the other is
    sent is computed again with the worker's error. Its next process begins without one."""
    link, faults, updates = LINKS[name], [], 40
    if kill:
        pool.have_ready(workers=4)
        faults, updates = [fail_at(worker=1, step=5)], 120  # that the next process still pushes
    run = train(
        TASK, RULE, tg.BoundedDelay(3), workers=3, shards=2, updates=updates, link=link,
        checkpoints=tg.Checkpoints(tmp_path, every=10),
        processes=tg.Processes(pool=pool, digest_every=5),
        scenario=tg.Scenario(impose=TIMES, faults=faults),
    )  # fmt: skip
    assert_replays(run, TASK, RULE, updates, codec=link.codec)
    assert_nothing_lost_or_twice(tmp_path, 2, updates)
    if link.codec.error_feedback:
        anew = run.schedule.fresh_rows & (run.schedule.step > 0)
        assert run.schedule.worker[anew].tolist() == ([1] if kill else [])
    assert run.codec == link.codec
    assert run.traffic is not None
    push, numbers = run.traffic.push, run.params.numel()
    each = link.codec.encoded_bytes(numbers // 2, 4)
    assert abs(push.sent_bytes - push.sent * each) <= push.sent  # halves of an odd number
    replayed = tg.replay(tmp_path, task=TASK, rule=RULE, codec=link.codec)
    assert replayed.difference is None
    assert replayed.compared


def test_a_shard_comes_back_with_what_workers_have_not_sent(
    pool: ActorPool, tmp_path: Path
) -> None:
    link = LINKS["top_k behind a gate"]
    run = train(
        TASK, RULE, tg.Async(), workers=3, shards=2, updates=60, link=link,
        checkpoints=tg.Checkpoints(tmp_path, every=10),
        processes=tg.Processes(pool=pool, digest_every=5),
        scenario=tg.Scenario(impose=TIMES, faults=[fail_at(shard=0, version=27)]),
    )  # fmt: skip
    assert list(tmp_path.glob("cuts/*/states.*.safetensors"))
    assert_replays(run, TASK, RULE, 60, codec=link.codec)


HEADER = PushHeader(0, 0, 0, 0, (0, 0), (1, 1), 0.0, 0.1, 0.5, True)
MESSAGE = FromWorker(0, 0, 0, 0, 0, 0, HEADER)


def test_an_encoded_slice_travels_with_buffers_beside_it() -> None:
    values = np.linspace(-1.0, 1.0, 9)
    buffers = [np.arange(3.0)]
    for codec in (tg.TopK(0.3), tg.RandomK(0.3), tg.Sign(), tg.Int8(block=4)):
        encoded = codec.encode(values, SliceOf(0, 0, 1))
        header, arrays = encode_from_worker(MESSAGE, encoded, buffers)
        frame = decode_from_worker(header, arrays)
        assert frame.message == MESSAGE
        assert isinstance(frame.payload, tuple)
        assert not isinstance(frame.payload, SlotAddress)
        seen = codec.decode(frame.payload, 9)
        assert np.array_equal(seen, codec.decode(encoded, 9))
        assert [array.tolist() for array in frame.buffers] == [[0.0, 1.0, 2.0]]
        header[-1] = {"encoded": 7}
        with pytest.raises(FrameError, match="7 of "):
            decode_from_worker(header, arrays)


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        ((np.zeros(1, np.uint32),), "worker 0, step 0, at shard 1: TopK .*4 bytes"),
        ((np.array([99], np.uint32), np.ones(1, np.float32)), "TopK has not encoded that .*99"),
        ((np.zeros(2, np.float32),), "TopK has not encoded that .*unpack"),
    ],
)
def test_what_a_codec_has_not_encoded_is_refused(
    encoded: Encoded, why: str, tmp_path: Path
) -> None:
    disk, task = FolderDisk(tmp_path), tg.FunctionTask(torch.zeros(10), lambda v, w, s: v)
    link = tg.Full(codec=tg.TopK(0.2))
    sharding = Sharding.divide(task.layout, 2)
    setup = RunSetup(task, RULE, tg.Async(), sharding, workers=1, updates=10, link=link)
    shard = ShardProcess(setup, disk, shard_origin(RecoveredRun(setup, disk), 1, epoch=1))
    with pytest.raises(Refused, match=why):
        shard.decoded(HEADER, encoded)
    good = link.codec.encode(np.arange(5, dtype=np.float32), SliceOf(0, 0, 1))
    assert shard.decoded(HEADER, good)[0].tolist() == [0.0, 0.0, 0.0, 0.0, 4.0]
    disk.close()

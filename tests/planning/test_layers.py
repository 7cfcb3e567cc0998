"""Layer timing: lower layers are staler, by theory and in the event order."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tardigrad.clusters import Constant, Exponential, Gamma, Network
from tardigrad.scheduling import validate
from tardigrad.scheduling.analysis import Distribution, delays_at
from tardigrad.scheduling.layers import LayerTiming, layered_schedule


def test_the_bottom_layer_waits_for_everybody_and_the_top_for_its_share() -> None:
    workers, layers = 40, 18
    timing = LayerTiming.even(layers)
    made = layered_schedule(Gamma(workers=workers), timing, updates=10_000)
    validate(made)
    means = [Distribution.of(delays_at(made, layer)).mean for layer in range(layers)]
    assert abs(means[0] - (workers - 1)) < 1
    assert abs(means[-1] - workers * timing.spans[-1]) < 1
    assert all(a > b for a, b in itertools.pairwise(means))


def test_one_layer_is_the_asynchronous_schedule() -> None:
    from tardigrad.scheduling import schedule

    cluster = Exponential(workers=5)
    layered = layered_schedule(cluster, LayerTiming.even(1), updates=200, seed=4)
    plain = schedule(cluster=cluster, updates=200, seed=4)
    assert np.array_equal(layered.delays, plain.delays)
    assert np.array_equal(layered.group_time_s, plain.group_time_s)
    assert np.array_equal(layered.worker[layered.group_rows], plain.worker[plain.group_rows])


def test_versions_read_are_those_of_a_plain_event_loop() -> None:
    """A slow twin: all reads and pushes as events in one sorted list."""
    timing = LayerTiming((1.0, 0.7, 0.4), forward=0.25)
    cluster = Exponential(workers=3)
    made = layered_schedule(cluster, timing, updates=60, seed=1)
    times = cluster.realise(1)
    events = []
    for worker in range(3):
        began = 0.0
        for step in range(100):
            took = float(times.step_s(worker, step))
            for layer, span in enumerate(timing.spans):
                read_s = began + 0.25 * (1 - span) * took
                push_s = began + took if span == 1 else read_s + span * took
                events += [(push_s, 0, worker, step, layer), (read_s, 1, worker, step, layer)]
            began += took
    version, read = [0, 0, 0], {}
    for _, is_read, worker, step, layer in sorted(events):
        if is_read:
            read[worker, step, layer] = min(version[layer], 60)
        else:
            version[layer] += 1
    for row in np.unique(made.group_rows):
        for layer in range(3):
            expected = read[int(made.worker[row]), int(made.step[row]), layer]
            assert made.read[row, layer] == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LayerTiming(()), "layers"),
        (lambda: LayerTiming((0.9, 0.5)), "bottom layer"),
        (lambda: LayerTiming((1.0, 0.5, 0.6)), "must not rise"),
        (lambda: LayerTiming((1.0, 0.0)), r"spans\[1\]"),
        (lambda: LayerTiming((1.0,), forward=1.5), "forward"),
        (
            lambda: layered_schedule(Constant(2, network=Network()), LayerTiming.even(2), 5),
            "without network",
        ),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()

"""Which samples a turn sees."""

import numpy as np
import pytest

from tardigrad.tasks.sampling import (
    ByLabel,
    Epoch,
    Independent,
    Indices,
    Partition,
    Sampler,
    sampler,
)

COUNT, BATCH, SEED = 103, 8, 4
LABELS = np.arange(COUNT) * 7 % 5
KINDS = ["independent", "epoch", "partition", "by_label"]


def draw(sample: Sampler, *turns: tuple[int, int, int]) -> Indices:
    workers, steps, rows = np.array(turns, dtype=np.int64).T
    return sample(workers, steps, rows)


@pytest.mark.parametrize("name", KINDS)
def test_sampling_is_a_pure_function_of_the_turn(name: str) -> None:
    turns = [(w, s, 5 * s + w) for s in range(40) for w in range(5)]
    all_at_once = draw(sampler(name, COUNT, BATCH, SEED, 5, LABELS), *turns)
    assert all_at_once.shape == (200, BATCH)
    assert all_at_once.min() >= 0
    assert all_at_once.max() < COUNT
    backwards = sampler(name, COUNT, BATCH, SEED, 5, LABELS)
    for i in reversed(range(len(turns))):
        assert np.array_equal(draw(backwards, turns[i])[0], all_at_once[i])
    assert not np.array_equal(draw(sampler(name, COUNT, BATCH, 5, 5, LABELS), *turns), all_at_once)


def test_independent_draws_know_nothing_of_rows_or_other_workers() -> None:
    sample = Independent(COUNT, BATCH, SEED)
    assert np.array_equal(draw(sample, (1, 2, 0)), draw(sample, (1, 2, 77)))
    assert not np.array_equal(draw(sample, (1, 2, 0)), draw(sample, (2, 2, 0)))


def test_independent_draws_are_uniform() -> None:
    sample = Independent(10, 100, SEED)
    counts = np.bincount(draw(sample, *((w, s, 0) for w in range(10) for s in range(10))).ravel())
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_an_epoch_deals_out_every_sample_once_by_row() -> None:
    rows = 2 * COUNT  # BATCH epochs twice over: batches straddle their ends
    dealt = draw(Epoch(COUNT, BATCH, SEED), *((7, 0, r) for r in range(rows))).ravel()
    epochs = dealt.reshape(-1, COUNT)
    assert all(np.array_equal(np.sort(epoch), np.arange(COUNT)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1])


@pytest.mark.parametrize(
    "sample", [Partition(COUNT, BATCH, SEED, 5), ByLabel(COUNT, BATCH, SEED, 5, LABELS)]
)
def test_shares_are_disjoint_cover_everything_and_are_passed_through_whole(
    sample: Partition,
) -> None:
    shares = [set(sample.share(w).tolist()) for w in range(5)]
    assert set.union(*shares) == set(range(COUNT))
    assert sum(map(len, shares)) == COUNT
    assert {len(share) for share in shares} <= {20, 21, 22}
    for worker, share in enumerate(shares):
        own = draw(sample, *((worker, s, 0) for s in range(2 * len(share)))).ravel()
        passes = own.reshape(-1, len(share))
        assert all(set(one.tolist()) == share for one in passes)
        assert not np.array_equal(passes[0], passes[1])


def test_by_label_a_share_is_two_runs_of_the_samples_in_order_of_labels() -> None:
    count, workers = 200, 10
    labels = np.arange(count) * 3 % 10  # 20 of each: a piece is half a label
    sample = ByLabel(count, BATCH, SEED, workers, labels)
    for worker in range(workers):
        counts = np.bincount(labels[sample.share(worker)], minlength=10)
        assert sorted(counts[counts > 0].tolist()) in ([10, 10], [20])
    shuffled = Partition(count, BATCH, SEED, workers)
    assert min(len(set(labels[shuffled.share(w)].tolist())) for w in range(workers)) > 4
    other = ByLabel(count, BATCH, SEED + 1, workers, labels)
    assert any(set(other.share(w)) != set(sample.share(w)) for w in range(workers))


def test_a_worker_without_a_share_is_refused() -> None:
    with pytest.raises(ValueError, match="set workers = 6 or more"):
        draw(Partition(COUNT, BATCH, SEED, workers=5), (5, 0, 0))


@pytest.mark.parametrize("name", KINDS)
def test_a_batch_may_be_larger_than_what_it_is_drawn_from(name: str) -> None:
    drawn = draw(sampler(name, 4, 10, SEED, 2, LABELS[:4]), (1, 4, 9))
    assert drawn.shape == (1, 10)
    assert set(drawn.ravel().tolist()) <= {0, 1, 2, 3}

"""Without stragglers, and with failures: against theory and by hand."""

import numpy as np
import pytest

from tardigrad.clusters import Absence, Constant, Exponential, Gamma
from tardigrad.planning.measure import Setting
from tardigrad.planning.what_if import FAILURES, Failures, WithoutStragglers, goodput
from tardigrad.policies import Async, Sync


def test_without_stragglers_every_step_takes_the_mean() -> None:
    cluster = Gamma(workers=5, heterogeneous=True)
    times, even = cluster.realise(3), WithoutStragglers(cluster).realise(3)
    steps = np.array([4, 0, 4])
    means = times.step_s(np.arange(5)[:, None], steps[None, :]).mean(axis=0)
    assert even.step_s(2, steps) == pytest.approx(means)
    assert even.step_s([[0], [4]], steps[None, :]) == pytest.approx(np.array([means, means]))
    assert float(even.step_s(1, 4)) == pytest.approx(means[0])
    assert WithoutStragglers(cluster).sized(3).workers == 3


def test_without_stragglers_nobody_waits() -> None:
    setting = Setting(WithoutStragglers(Exponential(workers=6)), gradients=3000)
    summary = setting.measure(Sync()).summary
    assert summary.waiting == pytest.approx(0, abs=1e-9)
    free = setting.measure(Async()).summary
    assert summary.gradients_per_s == pytest.approx(free.gradients_per_s, rel=0.02)


@pytest.mark.parametrize("policy", [Async(), Sync()])
def test_goodput_is_the_share_of_time_that_workers_are_there(policy: Async | Sync) -> None:
    """Constant steps of 1 s, gone for 20 of 220 s, and half a step lost each time."""
    setting = Setting(Constant(workers=10, step_s=1.0), gradients=1000)
    found = goodput(setting, policy, Failures(mtbf_s=200.0, repair_s=20.0))
    assert found.failures >= 0.7 * FAILURES
    assert found.share == pytest.approx((200 - 0.5) / 220, abs=0.03)


def test_rare_failures_are_estimated() -> None:
    setting = Setting(Constant(workers=10, step_s=1.0), gradients=1000)
    found = goodput(setting, Async(), Failures(mtbf_s=1e6, repair_s=1e4))
    assert found.failures == 0
    assert found.share == pytest.approx((1e6 - 0.5) / (1e6 + 1e4))


def test_failures_that_leave_nothing_are_refused() -> None:
    setting = Setting(Constant(workers=2, step_s=5.0), gradients=100)
    with pytest.raises(ValueError, match="shorter than a mean step of 5 s"):
        goodput(setting, Async(), Failures(mtbf_s=4.0))
    with pytest.raises(ValueError, match="the cluster has its own"):
        Failures(50.0).cluster(Constant(2, absences=(Absence(0, 1.0),)), 100.0, 0)
    with pytest.raises(ValueError, match="mtbf must be greater than 0"):
        Failures(0.0)

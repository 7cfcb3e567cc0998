"""Pipelines: the schedule, and its execution beside a PipeDream written out by hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tardigrad as tg
from tardigrad.clusters import Network
from tardigrad.core.layout import Layout
from tardigrad.report.stages import draw_stage_delays
from tardigrad.scheduling.analysis import delays_at
from tardigrad.scheduling.validate import validate

RATE, BATCHES = 0.05, 40


def test_each_stage_is_late_by_those_behind_it() -> None:
    for stages in (1, 2, 5):
        made = tg.pipeline_schedule(stages, tg.Gamma(workers=stages), 30)
        validate(made)
        assert made.updates == 30
        for s in range(stages):
            late = stages - 1 - s
            expected = [min(b, late) for b in range(30)]
            assert delays_at(made, s).tolist() == expected
            mine = made.group_shard == s
            assert made.group_rows[mine].tolist() == list(range(30))  # in order, each alone


def test_the_times_of_one_forward_one_backward() -> None:
    """Two equal stages of 3 s: 1 forward, 2 backward. By hand: stage 0 takes 0 and 1 forward, stage
    1 takes 0 there and back from 1 to 4; then 0 goes back at stage 0 from 4 to 6, and so on."""
    made = tg.pipeline_schedule(2, tg.Constant(workers=2, step_s=3.0), 4)
    assert made.start_s.tolist() == pytest.approx([0, 1, 6, 9])
    assert made.end_s.tolist() == pytest.approx([6, 9, 12, 15])
    at = {s: made.group_time_s[made.group_shard == s].tolist() for s in (0, 1)}
    assert at[1] == pytest.approx([4, 7, 10, 13])
    assert at[0] == pytest.approx([6, 9, 12, 15])


def test_a_machine_does_one_pass_at_a_time_and_passes_follow_each_other() -> None:
    """On drawn times: what a stage does takes no longer than there was, and rows keep their way."""
    made = tg.pipeline_schedule(4, tg.Gamma(workers=4, heterogeneous=True), 60, seed=2)
    took_s = (
        tg.Gamma(workers=4, heterogeneous=True)
        .realise(2)
        .step_s(np.arange(4)[:, None], np.arange(60)[None, :])
    )
    ends = np.array([made.group_time_s[made.group_shard == s] for s in range(4)])
    assert (ends[:-1] - ends[1:] >= took_s[:-1] * 2 / 3 - 1e-9).all()  # back through the stages
    assert (ends[:, -1] >= took_s.sum(axis=1) - 1e-9).all()
    busiest = took_s.sum(axis=1).max()
    assert ends[0, -1] < busiest * 1.5  # it is a pipeline: stages work at the same time
    # At most P minibatches are under way.
    assert (made.start_s[4:] >= made.end_s[:-4] - 1e-9).all()


def stage(inputs: int, outputs: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh()).double()


def stages_of_a_model() -> list[nn.Sequential]:
    return [stage(5, 5, 1), stage(5, 5, 2), stage(5, 5, 3)]


def batch(number: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(100 + number)
    return (
        torch.randn(4, 5, generator=draw, dtype=torch.float64),
        torch.randn(4, 5, generator=draw, dtype=torch.float64),
    )


def pipedream(momentum: float) -> list[Tensor]:
    """Stage by stage: its own parameters and velocity, a stash for each minibatch under way, and
    queues between neighbours; every stage alternates forward and backward."""
    parts = stages_of_a_model()
    weights = [[p.detach().clone() for p in part.parameters()] for part in parts]
    velocity = [[torch.zeros_like(w) for w in each] for each in weights]
    stash: list[dict[int, tuple[list[Tensor], Tensor, Tensor]]] = [{} for _ in parts]
    forward: list[dict[int, Tensor]] = [{} for _ in range(len(parts) + 1)]
    backward: list[dict[int, Tensor]] = [{} for _ in range(len(parts) + 1)]
    forward[0] = {b: batch(b)[0] for b in range(BATCHES)}
    last = len(parts) - 1
    orders: list[list[tuple[str, int]]] = []
    for s in range(len(parts)):
        ahead = len(parts) - s
        order = [("forward", b) for b in range(min(ahead, BATCHES))]
        for b in range(BATCHES):
            order.append(("backward", b))
            if b + ahead < BATCHES:
                order.append(("forward", b + ahead))
        orders.append(order)
    while any(orders):
        for s, part in enumerate(parts):
            if not orders[s]:
                continue
            what, b = orders[s][0]
            if what == "forward" and b in forward[s]:
                used = [w.clone().requires_grad_() for w in weights[s]]
                came = forward[s].pop(b).detach().requires_grad_()
                named = dict(zip((n for n, _ in part.named_parameters()), used, strict=True))
                out = torch.func.functional_call(part, named, (came,))
                stash[s][b] = (used, came, out)
                forward[s + 1][b] = out
                if s == last:
                    loss = ((out - batch(b)[1]) ** 2).mean()
                    (backward[s + 1][b],) = torch.autograd.grad(loss, out, retain_graph=True)
            elif what == "backward" and b in backward[s + 1]:
                used, came, out = stash[s].pop(b)
                *grads, back = torch.autograd.grad(
                    out, [*used, came], backward[s + 1].pop(b), allow_unused=False
                )
                backward[s][b] = back
                for i, grad in enumerate(grads):
                    velocity[s][i] = momentum * velocity[s][i] + grad
                    weights[s][i] = weights[s][i] - RATE * velocity[s][i]
            else:
                continue
            orders[s].pop(0)
    return [w for each in weights for w in each]


def whole_model(stages: int) -> tg.FunctionTask:
    module = nn.Sequential(*stages_of_a_model())
    shapes = {name: p.shape for name, p in module.named_parameters()}
    layout = Layout(tuple(shapes), tuple(map(tuple, shapes.values())))

    def grad(view: Tensor, worker: int, step: int) -> Tensor:
        inputs, targets = batch(step * stages + worker)
        at = view.clone().requires_grad_()
        named, offset = {}, 0
        for name, shape in shapes.items():
            named[name] = at[offset : offset + shape.numel()].view(shape)
            offset += shape.numel()
        loss = ((torch.func.functional_call(module, named, (inputs,)) - targets) ** 2).mean()
        return torch.autograd.grad(loss, at)[0]

    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    return tg.FunctionTask(theta, grad, layout=layout)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_equals_a_pipedream_written_by_hand(momentum: float) -> None:
    made = tg.pipeline_schedule(3, tg.Gamma(workers=3), BATCHES)
    rule = tg.rules.sgd(RATE, momentum)
    run = tg.execute(made, whole_model(3), rule, engine="exact", shard_by="tensor")
    expected = torch.cat([w.reshape(-1) for w in pipedream(momentum)])
    assert (run.params - expected).abs().max() <= 1e-12
    late = tg.execute(
        tg.pipeline_schedule(1, tg.Gamma(workers=1), BATCHES), whole_model(1), rule, engine="exact"
    )
    assert (run.params - late.params).abs().max() > 1e-4  # staleness does something here


def test_one_stage_is_one_worker_that_is_never_late() -> None:
    made = tg.pipeline_schedule(1, tg.Gamma(workers=1), 20)
    plain = tg.schedule(tg.Sync(), tg.Gamma(workers=1), 20)
    assert made.group_time_s == pytest.approx(plain.group_time_s)
    assert not made.delays.any()


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    made = tg.pipeline_schedule(3, tg.Gamma(workers=3), 20)
    made.save(tmp_path / "pipeline")
    assert tg.Schedule.load(tmp_path / "pipeline") == made


def test_the_figure_of_delays_by_stage(tmp_path: Path) -> None:
    made = tg.pipeline_schedule(6, tg.Gamma(workers=6), 200)
    delays = draw_stage_delays(made, tmp_path / "stages.png")
    assert delays == pytest.approx([5, 4, 3, 2, 1, 0], abs=0.1)
    assert (tmp_path / "stages.png").stat().st_size > 5000


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: tg.pipeline_schedule(0, tg.Gamma(workers=1)), "stages must be a whole number"),
    (
        lambda: tg.pipeline_schedule(3, tg.Gamma(workers=4)),
        "3 stages need as many machines, and the cluster has 4: write workers=3",
    ),
    (
        lambda: tg.pipeline_schedule(2, tg.Gamma(workers=2), forward=1.0),
        r"forward = 1.0 is not in \(0, 1\)",
    ),
    (
        lambda: tg.pipeline_schedule(2, tg.Gamma(workers=2, network=Network(latency_s=1.0))),
        "a pipeline needs a cluster with times, without network and absences",
    ),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_input_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()

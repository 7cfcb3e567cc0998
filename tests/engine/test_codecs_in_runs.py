"""Runs with codecs beside a slow twin of the whole run, and what follows from the schedule."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tardigrad as tg
from tardigrad.engine.execute import prepare
from tardigrad.links import that_codes
from tardigrad.scheduling import held_back
from tardigrad.tasks import quadratic
from tests.links import codec_references as reference

SIZE = 6
CURVATURE = torch.linspace(0.5, 2.0, SIZE, dtype=torch.float64)
START = torch.linspace(-1.0, 2.0, SIZE, dtype=torch.float64)
LR = 0.05

CODED: dict[str, tuple[tg.Codec, reference.Coded]] = {
    "top_k": (tg.TopK(0.4), lambda v: reference.top_k(v, max(1, round(0.4 * len(v))))),
    "sign": (tg.Sign(), reference.sign),
    "int8": (tg.Int8(block=2), lambda v: reference.int8(v, 2)),
}
ABSENT = tg.Gamma(workers=4, absences=(tg.Absence(1, 900.0, 1500.0),))


def own_noise(worker: int, step: int) -> torch.Tensor:
    return torch.sin(torch.arange(SIZE, dtype=torch.float64) * (worker + 2) + step)


def task() -> tg.FunctionTask:
    def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        return CURVATURE * view + 0.3 * own_noise(worker, step)

    return tg.FunctionTask(START.clone(), grad)


def twin(schedule: tg.Schedule, coded: reference.Coded, feedback: bool) -> list[float]:
    """θ at the end, number by number, from what the schedule tells alone."""
    each = SIZE // schedule.shards
    parts = [range(s * each, (s + 1) * each) for s in range(schedule.shards)]
    sent = [[[float(START[i]) for i in part]] for part in parts]
    held = held_back(schedule)
    back = {
        (w, s): reference.FedBack(each)
        for w in range(schedule.workers)
        for s in range(schedule.shards)
    }
    begins = {
        (int(w), float(t))
        for w, t, joined in zip(
            schedule.member_worker, schedule.member_time_s, schedule.member_joined, strict=True
        )
        if joined
    }
    pushed: dict[tuple[int, int], list[float] | None] = {}
    raw: dict[tuple[int, int], list[float]] = {}
    done: set[int] = set()

    def compute(row: int) -> None:
        worker, step = int(schedule.worker[row]), int(schedule.step[row])
        for joined_by, time_s in sorted(begins):
            if joined_by == worker and schedule.start_s[row] >= time_s:
                begins.discard((joined_by, time_s))
                for s in range(schedule.shards):
                    back[worker, s] = reference.FedBack(each)
        noise = own_noise(worker, step)
        for s, part in enumerate(parts):
            view = sent[s][int(schedule.read[row, s])]
            grad = [
                float(CURVATURE[i]) * x + 0.3 * float(noise[i])
                for i, x in zip(part, view, strict=True)
            ]
            raw[row, s] = grad
            if feedback:
                pushed[row, s] = back[worker, s].push(grad, coded, bool(held[row, s]))
        done.add(row)

    for group in range(schedule.groups):
        s = int(schedule.group_shard[group])
        arrived = []
        for row in schedule.group(group).tolist():
            merged = schedule.merged.get((row, s), [])
            for one in [*merged, row]:
                before = schedule.worker[: one + 1] == schedule.worker[one]
                for earlier in before.nonzero()[0].tolist():
                    over = bool(schedule.end_s[earlier] == schedule.end_s[earlier])
                    if earlier not in done and (over or earlier == one):
                        compute(earlier)
            if feedback:
                found = pushed[row, s]
                assert found is not None
                arrived.append(found)
            else:
                each_one = [raw[one, s] for one in (*merged, row)]
                arrived.append(coded([sum(x) / len(x) for x in zip(*each_one, strict=True)]))
        step = [sum(x) / len(x) for x in zip(*arrived, strict=True)]
        scale = float(schedule.group_scale[group])
        now = sent[s][-1]
        sent[s].append([t - LR * scale * g for t, g in zip(now, step, strict=True)])
    return [x for versions in sent for x in versions[-1]]


LINKS: dict[str, Callable[[tg.Codec], tg.Link]] = {
    "full": lambda codec: tg.Full(codec=codec),
    "every": lambda codec: tg.Every(push=3, codec=codec),
}
POLICIES: dict[str, tg.Policy] = {
    "async": tg.Async(),
    "drops": tg.BoundedDelay(max_delay=2),
}


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", CODED)
def test_a_run_is_what_the_formulas_say(name: str, link: str, policy: str, feedback: bool) -> None:
    codec, coded = CODED[name]
    codec = replace(codec, error_feedback=feedback)  # type: ignore[type-var]
    over = LINKS[link](codec)
    run = tg.simulate(task(), tg.rules.sgd(LR), POLICIES[policy], ABSENT, 60, shards=2, link=over)
    if policy == "drops":
        assert "delay over bound" in run.schedule.reasons
    expected = torch.tensor(twin(run.schedule, coded, feedback), dtype=torch.float64)
    assert (run.params - expected).abs().max() <= 1e-12


@pytest.mark.parametrize("link", [tg.Full(), tg.Every(push=2, pull=3)])
def test_identity_is_the_plain_run(link: tg.Link) -> None:
    rule, cluster = tg.rules.sgd(0.1, momentum=0.9), tg.Gamma(workers=4)
    plain = tg.simulate(quadratic(10), rule, cluster=cluster, updates=80, link=link)
    coded = replace(link, codec=tg.Identity())  # type: ignore[type-var]
    run = tg.simulate(quadratic(10), rule, cluster=cluster, updates=80, link=coded)
    assert torch.equal(run.params, plain.params)
    assert run.traffic == plain.traffic
    assert run.schedule.about == plain.schedule.about
    all_sent = replace(link, codec=tg.TopK(1.0, error_feedback=False))  # type: ignore[type-var]
    run = tg.simulate(quadratic(10), rule, cluster=cluster, updates=80, link=all_sent)
    assert torch.equal(run.params, plain.params)


def test_nothing_is_lost_where_errors_are_fed_back() -> None:
    """What came, and what is still kept, is all that workers have computed."""
    grads: dict[tuple[int, int], torch.Tensor] = {}

    def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        grads[worker, step] = own_noise(worker, step)
        return grads[worker, step]

    free = tg.FunctionTask(torch.zeros(SIZE, dtype=torch.float64), grad)
    link = tg.Every(push=2, codec=tg.TopK(0.2))
    schedule = tg.schedule(cluster=tg.Gamma(workers=3), updates=40, link=link)
    execution = prepare(schedule, free, tg.rules.sgd(1.0), "exact", codec=link.codec)
    while not execution.finished:
        execution.advance_to(execution.total)
    kept = [t for name, t in execution.tensors().items() if name.startswith("error.")]
    assert len(kept) == 3
    total = torch.stack(list(grads.values())).sum(0)
    # Rows that were pushed and encoded after each worker's last update are not computed.
    assert (total - (torch.stack(kept).sum(0) - execution.params)).abs().max() <= 1e-12


@pytest.mark.parametrize("on_drop", ["reapply", "average"])
@pytest.mark.parametrize("codec", [tg.TopK(0.2), tg.TopK(0.2, error_feedback=False), tg.Sign()])
def test_a_gate_that_reads_tensors_and_a_codec(
    codec: tg.Codec, on_drop: str, tmp_path: Path
) -> None:
    """Made and executed together, executed again from the schedule, and gone on with: one run."""
    link = tg.BandwidthAware(c_push=0.5, c_pull=0.2, on_drop=on_drop, codec=codec)  # type: ignore[arg-type]
    learned, rule, cluster = quadratic(10), tg.rules.fasgd(0.02), ABSENT

    def made(**options: object) -> tg.Run:
        return tg.simulate(
            learned,
            rule,
            cluster=cluster,
            updates=120,
            shards=2,
            link=link,
            **options,  # type: ignore[arg-type]
        )

    run = made()
    assert held_back(run.schedule).any()
    again = tg.execute(run.schedule, learned, rule, "exact", codec=codec)
    assert torch.equal(again.params, run.params)
    assert again.traffic == run.traffic
    stopped = tg.Stop(virtual_s=800.0)
    made(checkpoints=tg.Checkpoints(tmp_path, every=10), stop=stopped)
    gone_on = made(checkpoints=tg.Checkpoints(tmp_path, every=10, resume=True))
    assert torch.equal(gone_on.params, run.params)


@pytest.mark.parametrize("codec", [tg.TopK(0.2), tg.RandomK(0.3), tg.Int8(error_feedback=False)])
def test_a_resumed_run_has_the_same_bits(codec: tg.Codec, tmp_path: Path) -> None:
    link, rule = tg.Every(push=2, codec=codec), tg.rules.sgd(0.05, momentum=0.5)
    cluster = tg.Gamma(workers=4)

    def made(**options: object) -> tg.Run:
        return tg.simulate(
            task(),
            rule,
            tg.BoundedDelay(3),
            cluster,
            100,
            shards=2,
            link=link,
            **options,  # type: ignore[arg-type]
        )

    whole = made()
    stop = tg.Stop(virtual_s=float(whole.schedule.group_time_s[70]))
    made(checkpoints=tg.Checkpoints(tmp_path, every=7), stop=stop)
    run = made(checkpoints=tg.Checkpoints(tmp_path, every=7, resume=True))
    assert torch.equal(run.params, whole.params)
    assert tg.replay(run).difference is None
    assert tg.replay(tmp_path, task=task(), rule=rule, codec=codec).difference is None


def test_bytes_and_times_are_those_of_the_encoded_form() -> None:
    numbers = 10_000
    network = tg.Network(bandwidth_bytes_s=1000.0, model_bytes=4.0 * numbers)
    cluster = tg.Constant(workers=1, step_s=5.0, network=network)
    for codec in (tg.Identity(), tg.TopK(0.01), tg.Sign(), tg.Int8()):
        for bulk in (True, False):
            schedule = tg.schedule(cluster=cluster, updates=3, link=tg.Full(codec=codec), bulk=bulk)
            push_s = codec.encoded_bytes(numbers, 4) / 1000
            # A step, the gradient as it travels, and whole parameters back.
            first = 5 + push_s
            expected = [first + i * (first + 40) for i in range(3)]
            assert schedule.group_time_s.tolist() == pytest.approx(expected)
    learned = tg.FunctionTask(torch.zeros(numbers), lambda view, worker, step: view + 1)
    run = tg.simulate(
        learned,
        tg.rules.sgd(0.1),
        cluster=cluster,
        updates=3,
        shards=2,
        link=tg.Every(push=2, codec=tg.TopK(0.01)),
        evaluation=1,
    )
    assert run.traffic is not None
    push, pull = run.traffic.push, run.traffic.pull
    assert push.sent_bytes == push.sent * 50 * 8
    assert push.potential_bytes == push.potential * 4 * numbers // 2
    assert pull.sent_bytes == pull.sent * 4 * numbers // 2
    assert run.history.records[-1]["push_bytes"] <= push.sent_bytes


def test_the_fast_engine_leaves_codecs_to_the_exact_one() -> None:
    told: list[str] = []
    link = tg.Full(codec=tg.Sign())
    run = tg.simulate(
        quadratic(4),
        tg.rules.sgd(0.1),
        cluster=tg.Gamma(workers=2),
        updates=5,
        engine="fast",
        link=link,
        say=told.append,
    )
    assert "engine: exact, because the fast one does not know Sign yet" in told
    assert that_codes(run.codec) == (tg.Sign(),)


def test_what_does_not_go_with_a_codec_is_told() -> None:
    cluster = tg.Gamma(workers=2)
    with pytest.raises(ValueError, match=r"b_staleness.* and Sign changes what is applied"):
        tg.simulate(
            quadratic(4),
            tg.rules.sgd(0.1),
            link=tg.Full(codec=tg.Sign()),
            evaluation=tg.Evaluation(1, measures=("b_staleness",)),
            cluster=cluster,
            updates=5,
        )
    with pytest.raises(ValueError, match=r"codec must be a tg\.Codec such as tg\.TopK"):
        tg.execute(
            tg.schedule(cluster=cluster, updates=5),
            quadratic(4),
            tg.rules.sgd(0.1),
            codec="sign",  # type: ignore[arg-type]
        )

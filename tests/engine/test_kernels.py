"""Window kernels against the rules they are written from, update by update."""

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.core.trees import named
from tardigrad.engine.kernels import CppKernel, trace
from tardigrad.engine.kernels.pieces import Factors, Piece, plain, shape_of
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import RULES, Adam, DelayCompensation, Rule
from tardigrad.rules.rates import Progress, cosine
from tests.rules.named_rules import made

SIZE, WORKERS, UPDATES = 3001, 5, 24
CASES: dict[str, Rule] = {
    name: made(name, 0.1, weight_decay=1e-3) for name in RULES if name != "muon"
} | {
    "nesterov": tg.rules.sgd(lr=0.1, momentum=0.9, nesterov=True),
    "rmsprop_momentum": tg.rules.rmsprop(lr=0.01, momentum=0.9),
    "fasgd_magnitude": tg.rules.fasgd(lr=0.01, estimator="magnitude"),
    "fasgd_printed": tg.rules.fasgd(lr=0.01, estimator="printed"),
    "delay_compensated_adaptive": tg.rules.delay_compensated(lr=0.1, adaptive=True, momentum=0.5),
    "delay_server": tg.rules.delay_compensated(lr=0.1, adaptive=True, mean_square="server"),
    "gap_tentative": tg.rules.gap_aware(lr=0.1, step="tentative", tolerance=0.5),
    "staleness_gradient": tg.rules.staleness_aware(lr=0.1, on="gradient", staleness="max_one"),
    "composed": Rule(0.01, Adam(), DelayCompensation(lam=0.1), ema=0.9),
    "cosine": tg.rules.adam_ga(lr=cosine(0.1, over=UPDATES)),
}

Buffers = tuple[Tensor, list[Tensor], list[Tensor], Tensor]


class Both:
    """The same random pushes through a Shard and through a kernel's buffers."""

    def __init__(self, rule: Rule, dtype: torch.dtype, in_turn: bool = False) -> None:
        draw = torch.Generator().manual_seed(0)
        self.theta = torch.randn(SIZE, generator=draw, dtype=dtype)
        self.grads = torch.randn(UPDATES, SIZE, generator=draw, dtype=dtype)
        self.who = torch.randint(0, WORKERS, (UPDATES,), generator=draw).tolist()
        if in_turn:
            self.who = [w % WORKERS for w in range(UPDATES)]
        layout = Layout.flat(SIZE)
        self.shard = Shard(rule, self.theta, layout)
        program = trace(rule, dtype)
        self.kernel = CppKernel(program, dtype)
        self.rows = torch.tensor([[w, i, i, i] for w, i in enumerate(self.who)])
        values, version = [], [0] * WORKERS
        for w, i in enumerate(self.who):
            s = rule.scalars(Progress(w, w, 0))
            values.append([w - version[i] + 1, s.lr, s.lr_max, *s.correction, *s.optimizer])
            version[i] = w + 1
        table = program.scalars.table(torch.tensor(values, dtype=torch.float64))
        self.coefficients = table.to(dtype).contiguous()
        self.pieces: list[Piece] = [self.grads]
        self.views = [self.theta] * WORKERS
        self.read = [0] * WORKERS

    def buffers(self) -> Buffers:
        """θ, state, own rows and views as the kernel holds them, copied from the shard."""
        shard = self.shard
        states = [t.clone() for t in named(shard.state, "").values() if t.numel()]
        rows = [list(named(shard.own_of(i), "").values()) for i in range(WORKERS)]
        owns = [torch.stack(column) for column in zip(*rows, strict=True)]
        return shard.theta.clone(), states, owns, torch.stack(self.views)

    def window(self, begin: int, end: int, buffers: Buffers) -> bool:
        theta, states, owns, views = buffers
        shapes = [shape_of(piece) for piece in self.pieces]
        bound = self.kernel.bound(theta, states, owns, shapes, views, self.rows, self.coefficients)
        return bound.run(self.pieces, begin, end)

    def apply(self, w: int) -> None:
        i, shard = self.who[w], self.shard
        shard.apply([Arrived(i, self.grads[w], self.views[i], w - self.read[i])])
        self.read[i], self.views[i] = shard.version, shard.sent


def flat(buffers: Buffers) -> Tensor:
    theta, states, owns, views = buffers
    return torch.cat([t.reshape(-1) for t in (theta, *states, *owns, views)])


@pytest.mark.parametrize("name", CASES)
def test_each_update_equals_the_rule_in_float64(name: str) -> None:
    both = Both(CASES[name], torch.float64)
    for w in range(UPDATES):
        buffers = both.buffers()
        both.window(w, w + 1, buffers)
        both.apply(w)
        expected = flat(both.buffers())
        scale = expected.abs().clamp(min=1)
        assert ((flat(buffers) - expected).abs() / scale).max() <= 1e-12


@pytest.mark.parametrize(
    "name",
    [
        "fasgd",
        "gap_aware",
        "dana_ga",
        "delay_compensated_adaptive",
        "delayed_nesterov",
        "schedule_free",
        "adam_ga",
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_window_size_never_changes_a_bit(name: str, dtype: torch.dtype) -> None:
    results = []
    for windows in (
        [(0, UPDATES)],
        [(w, w + 1) for w in range(UPDATES)],
        [(0, 5), (5, 6), (6, 24)],
    ):
        both = Both(CASES[name], dtype)
        buffers = both.buffers()
        for begin, end in windows:
            both.window(begin, end, buffers)
        results.append(flat(buffers))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("name", ["fasgd", "dana_ga"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_in_pieces_give_the_same_bits(name: str, dtype: torch.dtype) -> None:
    results = []
    for sizes in ([SIZE], [1, 1500, 0, 1024, 2, 474]):
        both = Both(CASES[name], dtype)
        both.pieces = [piece.contiguous() for piece in both.grads.split(sizes, dim=1)]
        buffers = both.buffers()
        both.window(0, UPDATES, buffers)
        results.append(flat(buffers))
    assert torch.equal(*results)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


class OnGpu(Both):
    """The same through the Triton kernel; workers in turn, as the kernel's look-ahead asks."""

    def __init__(self, rule: Rule, dtype: torch.dtype) -> None:
        super().__init__(rule, dtype, in_turn=True)
        from tardigrad.engine.kernels.triton import TritonKernel

        self.gpu_kernel = TritonKernel(self.kernel.program, dtype)
        self.grads_gpu, self.rows_gpu = self.grads.cuda(), self.rows.cuda()
        self.coefficients_gpu = self.coefficients.cuda()

    def window(self, begin: int, end: int, buffers: Buffers) -> bool:
        theta, states, owns, views = buffers
        there = [theta.cuda(), *(t.cuda() for t in (*states, *owns)), views.cuda()]
        moved_theta, *rest, moved_views = there
        span = torch.tensor([begin, end], device="cuda")
        self.gpu_kernel.run(
            moved_theta,
            rest[: len(states)],
            rest[len(states) :],
            self.grads_gpu,
            moved_views,
            self.rows_gpu,
            self.coefficients_gpu,
            span,
            torch.zeros_like(span),
        )
        for here, gpu in zip((theta, *states, *owns, views), there, strict=True):
            here.copy_(gpu)
        return bool(theta.isfinite().all())


@needs_gpu
@pytest.mark.parametrize("name", CASES)
def test_each_update_equals_the_rule_on_the_gpu(name: str) -> None:
    both = OnGpu(CASES[name], torch.float64)
    for w in range(UPDATES):
        buffers = both.buffers()
        both.window(w, w + 1, buffers)
        both.apply(w)
        expected = flat(both.buffers())
        scale = expected.abs().clamp(min=1)
        assert ((flat(buffers) - expected).abs() / scale).max() <= 1e-12


@needs_gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_window_size_never_changes_a_bit_on_the_gpu(name: str, dtype: torch.dtype) -> None:
    results = []
    for windows in ([(0, UPDATES)], [(w, w + 1) for w in range(UPDATES)], [(0, 5), (5, 24)]):
        both = OnGpu(CASES[name], dtype)
        buffers = both.buffers()
        for begin, end in windows:
            both.window(begin, end, buffers)
        results.append(flat(buffers))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def factored(draw: torch.Generator, rows: int, terms: int, columns: int) -> Factors:
    """Its left side lies along the rows, as errors of a layer do."""
    left = torch.randn(UPDATES, terms, rows, generator=draw, dtype=torch.float64).transpose(1, 2)
    return Factors(left, torch.randn(UPDATES, terms, columns, generator=draw, dtype=torch.float64))


@pytest.mark.parametrize("name", ["fasgd", "dana_ga"])
def test_factors_of_gradients_are_multiplied(name: str) -> None:
    """Rows of one block, of several, and of more than one with a rest."""
    draw = torch.Generator().manual_seed(1)
    pieces: list[Piece] = [
        factored(draw, 3, 1, 200),
        torch.randn(UPDATES, 153, generator=draw, dtype=torch.float64),
        factored(draw, 1, 8, 2048),
        factored(draw, 2, 3, 100),
    ]
    results = []
    written: list[Piece] = [plain(piece) for piece in pieces]
    for form in (pieces, written):
        both = Both(CASES[name], torch.float64)
        both.pieces = form
        buffers = both.buffers()
        both.window(0, 7, buffers)
        both.window(7, UPDATES, buffers)
        results.append(flat(buffers))
    assert sum(shape_of(piece).numbers for piece in pieces) == SIZE
    torch.testing.assert_close(*results, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_it_says_whether_parameters_are_finite(wrong: float) -> None:
    both = Both(CASES["sgd"], torch.float32)
    buffers = both.buffers()
    assert both.window(0, 1, buffers)
    both.grads[1, -1] = wrong
    assert not both.window(1, 2, buffers)
    assert not both.window(2, 3, buffers)


def test_numbers_too_small_to_be_normal_count_as_zero() -> None:
    """They take many processors a hundred times as long. Other operations still see them."""
    both = Both(tg.rules.fasgd(lr=0.1), torch.float32)
    both.grads.zero_()
    theta, states, owns, views = both.buffers()
    squares, means, _ = states
    squares.fill_(1e-39)
    means.fill_(-1e-39)
    both.window(0, UPDATES, (theta, states, owns, views))
    assert not squares.any()
    assert not means.any()
    assert torch.equal(theta, both.theta)
    assert (torch.full((200_000,), 1e-39) * 0.5).count_nonzero() == 200_000


@pytest.mark.parametrize("per", ["layer", "global"])
def test_a_rule_with_norms_has_no_kernel(per: str) -> None:
    with pytest.raises(Unsuited, match=r"layout of tensors|several parameters"):
        trace(tg.rules.gap_aware(lr=0.1, per=per), torch.float32)  # type: ignore[arg-type]

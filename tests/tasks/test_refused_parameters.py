"""Parameters and gradients that rules cannot work on are refused before anything runs."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.engine.choose import Engine
from tardigrad.runtime import train
from tardigrad.tasks import Data, Gradient, Split, Turn

HALF = [torch.bfloat16, torch.float16]
LOSES = "which loses the small steps .*: keep them in float32"
SGD = tg.rules.sgd(0.1)
WORDS = Data(Split(torch.arange(20).reshape(10, 2), torch.arange(10) % 2))


def points() -> Data:
    return Data(Split(torch.randn(20, 3), torch.arange(20) % 2))


class Own:
    """A user's own task: no class of ours has looked at its parameters."""

    layout, batch_size, epoch_size = Layout.flat(4), 1, 0
    splits = ()

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def start(self) -> Tensor:
        return torch.ones(4, dtype=self.dtype)

    def gradient(self, view: Tensor, turn: Turn) -> Gradient:
        raise AssertionError("nothing may run")

    def start_buffers(self) -> tuple[Tensor, ...]:
        return ()

    def fold(self, buffers: tuple[Tensor, ...], batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return buffers

    def evaluate(self, params: Tensor, buffers: tuple[Tensor, ...], split: str) -> dict[str, float]:
        return {}


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_model_or_function_in_half_precision_is_refused(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=f"the parameters are {name}, {LOSES}"):
        tg.ModuleTask(nn.Linear(3, 2).to(dtype), "cross_entropy", points(), 4)
    with pytest.raises(ValueError, match=f"the parameters are {name}, {LOSES}"):
        tg.ModuleTask(nn.Linear(3, 2), "cross_entropy", points(), 4, dtype=dtype)
    with pytest.raises(ValueError, match=f"the parameters are {name}, {LOSES}"):
        tg.FunctionTask(torch.ones(3, dtype=dtype), lambda view, worker, step: view)


def test_what_is_advised_instead_works() -> None:
    module = nn.Linear(3, 2).to(torch.bfloat16)
    task = tg.ModuleTask(
        module, "cross_entropy", points(), 4, dtype="float32", precision="bf16", seed=1
    )
    cluster = tg.Gamma(workers=2)
    ended = tg.simulate(task, SGD, cluster=cluster, updates=5)
    assert ended.params.dtype == torch.float32
    assert not torch.equal(ended.params, task.start())


@pytest.mark.parametrize(
    ("dtype", "why"),
    [*((dtype, LOSES) for dtype in HALF)]
    + [(dtype, "steps along real numbers") for dtype in (torch.int64, torch.complex64)],
    ids=str,
)
def test_a_users_own_task_is_refused_by_both_engines_and_on_ray(
    dtype: torch.dtype, why: str
) -> None:
    cluster = tg.Gamma(workers=2)
    engines: tuple[Engine, ...] = ("exact", "fast", "auto")
    for engine in engines:
        with pytest.raises(ValueError, match=why):
            tg.simulate(Own(dtype), SGD, cluster=cluster, updates=5, engine=engine)
    fasgd, link = tg.rules.fasgd(0.1), tg.BandwidthAware(c_push=1.0)
    with pytest.raises(ValueError, match=why):
        tg.simulate(Own(dtype), fasgd, cluster=cluster, updates=5, link=link)
    with pytest.raises(ValueError, match=why):
        train(Own(dtype), SGD, updates=5)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_a_sparse_embedding_is_refused_by_its_name(kind: type[nn.Module]) -> None:
    def model(sparse: bool) -> nn.Module:
        rest = [nn.Linear(4, 2)] if kind is nn.EmbeddingBag else [nn.Flatten(), nn.Linear(8, 2)]
        return nn.Sequential(nn.Sequential(kind(20, 4, sparse=sparse)), *rest)

    named = rf"0\.0 is {kind.__name__}\(sparse=True\).*make it with sparse=False"
    with pytest.raises(ValueError, match=named):
        tg.ModuleTask(model(sparse=True), "cross_entropy", WORDS, 4)
    with pytest.raises(ValueError, match=rf"the module is {kind.__name__}\(sparse=True\)"):
        tg.ModuleTask(kind(20, 2, sparse=True), "cross_entropy", WORDS, 4)
    frozen = model(sparse=True)
    next(frozen.parameters()).requires_grad_(False)
    for fine in (model(sparse=False), frozen):
        task = tg.ModuleTask(fine, "cross_entropy", WORDS, 4)
        tg.simulate(task, SGD, cluster=tg.Gamma(workers=2), updates=3)


class Looked(nn.Module):
    """Sparse by a function, which no layer tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(20, 2))

    def forward(self, words: Tensor) -> Tensor:
        return functional.embedding(words, self.table, sparse=True).mean(1)


@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_a_sparse_gradient_is_refused_by_its_parameters_name(engine: Engine) -> None:
    task = tg.ModuleTask(Looked(), "cross_entropy", WORDS, 4)
    cluster = tg.Gamma(workers=2)
    with pytest.raises(ValueError, match=r"the gradient of table is sparse.*use sparse=False"):
        tg.simulate(task, SGD, cluster=cluster, updates=3, engine=engine)
    given = torch.ones(3).to_sparse()
    function = tg.FunctionTask(torch.ones(3), lambda view, worker, step: given)
    with pytest.raises(ValueError, match=r"returned sparse torch.float32 \(3,\)"):
        tg.simulate(function, SGD, cluster=cluster, updates=3, engine=engine)

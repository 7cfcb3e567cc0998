"""Window kernels for the GPU: Triton written from a rule's program.

Each program instance owns a block of parameters and runs all updates of a window over it, θ and the
state in registers. What the next few updates read is loaded ahead of its use, because one update's
arithmetic is too short to hide a trip to memory. So within a window no update may read a view or an
own row that an earlier one of the same window wrote: one gradient per worker, which is what a
window of gradients computed beforehand has anyway.

Where the window begins and ends is read from device memory, so that one captured graph serves every
window of a run.
"""

import hashlib
import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tardigrad.engine.kernels.trace import Program
from tardigrad.engine.kernels.update_table import COLUMNS, GRAD, OUT, OWN, VIEW

BLOCK = 256
WARPS = 4
AHEAD = 4
MOVERS = 8
_FORMS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "rsub": "{1} - {0}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "fma": "tl.fma({0}, {1}, {2})",
    "fma3": "{0} + {3} * {1} * {2}",
    "lerp": "{0} + {2} * ({1} - {0})",
    "sqrt": "tl.sqrt({0})",
    "abs": "tl.abs({0})",
    "neg": "-{0}",
    "exp": "tl.exp({0})",
    "reciprocal": "one / {0}",
    "at_least": "tl.where({0} < {1}, {1}, {0})",
    "zero": "zero",
    "one": "one",
    "copy": "{0}",
}


class TritonKernel:
    """A rule's windows on the GPU; see `kernels.window_kernel`.

    With several replicas, vectors and rows hold one after another, each a whole number of blocks,
    and `coefficients` is (replicas, updates, coefficients): each block takes its replica's.
    """

    def __init__(self, program: Program, dtype: torch.dtype, replicas: int = 1) -> None:
        self.program, self.replicas = program, replicas
        self._function = _imported(_source(program, dtype, stacked=replicas > 1))

    def run(
        self,
        theta: Tensor,
        states: Sequence[Tensor],
        owns: Sequence[Tensor],
        grads: Tensor,
        views: Tensor,
        rows: Tensor,
        coefficients: Tensor,
        windows: Tensor,
        batch: Tensor,
    ) -> None:
        """Updates windows[b] to windows[b + 1] − 1, b = batch[0], both read on the device."""
        blocks = -(-theta.numel() // BLOCK)
        stacked = (blocks // self.replicas, coefficients.stride(0)) if self.replicas > 1 else ()
        self._function[(blocks,)](
            theta,
            *states,
            *owns,
            grads,
            views,
            rows,
            coefficients,
            windows,
            batch,
            theta.numel(),
            owns[0].stride(0) if owns else 0,
            grads.stride(0),
            views.stride(0),
            *stacked,
            num_warps=WARPS,
            # Whether a product and a sum fuse must not depend on how the loop was unrolled, or the
            # window size would change bits. What should fuse is written as fma.
            enable_fp_fusion=False,
        )


def move_rows(buffer: Tensor, moves: Tensor, start: Tensor, batch: Tensor, size: int) -> None:
    """Copy rows of the buffer: moves[start[b] : start[b + 1]] are (from, to), b = batch[0]."""
    function = _imported(_MOVE)
    function[(-(-size // BLOCK), MOVERS)](buffer, moves, start, batch, size, buffer.stride(0))


def fetch_samples(
    samples: Tensor,
    start: Tensor,
    batch: Tensor,
    inputs: Tensor,
    targets: Tensor,
    chosen_inputs: Tensor,
    chosen_targets: Tensor,
    places: Tensor,
) -> None:
    """The samples of rows start[b] and after, b = batch[0], as many as there is room for; `places`
    gets those rows' numbers. One kernel instead of five: small batches wait for nothing else."""
    chosen = chosen_inputs.shape[0] * chosen_inputs.shape[1]
    each = chosen // len(places)
    function = _imported(_FETCH)
    function[(chosen,)](
        samples,
        start,
        batch,
        inputs,
        targets,
        chosen_inputs,
        chosen_targets,
        places,
        each,
        inputs[0].numel(),
        targets[0].numel(),
    )


def fold_rows(running: Tensor, rows: Tensor, weights: Tensor) -> None:
    """running ← weights[0]·running + weights[1]·row, of each row in turn."""
    function = _imported(_FOLD)
    blocks = -(-running.numel() // BLOCK)
    function[(blocks,)](
        *(running, rows, weights, len(rows), running.numel(), rows.stride(0)),
        enable_fp_fusion=False,
    )


_FOLD = f"""
import triton
import triton.language as tl


@triton.jit
def window(running_p, rows_p, weights_p, count, size, stride):
    i = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})
    m = i < size
    keep = tl.load(weights_p)
    weight = tl.load(weights_p + 1)
    running = tl.load(running_p + i, mask=m)
    for row in range(count):
        running = running * keep + tl.load(rows_p + row * stride + i, mask=m) * weight
    tl.store(running_p + i, running, mask=m)
"""

_FETCH = """
import triton
import triton.language as tl


@triton.jit
def window(
    samples_p, start_p, batch_p, inputs_p, targets_p, chosen_inputs_p, chosen_targets_p, places_p,
    each, input_size, target_size,
):
    at = tl.program_id(0).to(tl.int64)
    row = tl.load(start_p + tl.load(batch_p)) + at // each
    sample = tl.load(samples_p + row * each + at % each)
    for begin in range(0, input_size, 1024):
        i = begin + tl.arange(0, 1024)
        m = i < input_size
        value = tl.load(inputs_p + sample * input_size + i, mask=m)
        tl.store(chosen_inputs_p + at * input_size + i, value, mask=m)
    for begin in range(0, target_size, 128):
        i = begin + tl.arange(0, 128)
        m = i < target_size
        value = tl.load(targets_p + sample * target_size + i, mask=m)
        tl.store(chosen_targets_p + at * target_size + i, value, mask=m)
    tl.store(places_p + at // each, row, mask=at % each == 0)
"""

_MOVE = f"""
import triton
import triton.language as tl


@triton.jit
def window(buffer_p, moves_p, start_p, batch_p, size, stride):
    i = (tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})).to(tl.int64)
    m = i < size
    batch = tl.load(batch_p)
    first = tl.load(start_p + batch) + tl.program_id(1)
    for at in range(first, tl.load(start_p + batch + 1), {MOVERS}):
        source = tl.load(moves_p + 2 * at) * stride
        target = tl.load(moves_p + 2 * at + 1) * stride
        tl.store(buffer_p + target + i, tl.load(buffer_p + source + i, mask=m), mask=m)
"""


def _source(program: Program, dtype: torch.dtype, stacked: bool = False) -> str:
    real = {torch.float32: "tl.float32", torch.float64: "tl.float64"}[dtype]
    states = [f"s{i}" for i in range(program.states)]
    owns = [f"o{i}" for i in range(program.owns)]
    pointers = ", ".join(f"{t}_p" for t in ["theta", *states, *owns])
    # Triton takes a bare literal for float32, in a float64 kernel too.
    literals = sorted({a for step in program.steps for a in step.args if _is_literal(a)})
    constants = {text: f"k{i}" for i, text in enumerate(literals)}
    given = "\n".join(f"    {k} = tl.full((), {text}, {real})" for text, k in constants.items())

    def one_load(lane: str, at: str) -> list[str]:
        """Everything update `at` reads, under names that end in `lane`."""
        lines = [
            f"row{lane} = rows_p + {COLUMNS} * ({at})",
            f"at{lane} = tl.load(row{lane} + {GRAD})",
            f"grad{lane} = tl.load(grads_p + at{lane} * grad_stride + i, mask=m)",
        ]
        if program.reads_view:
            lines += [
                f"seen{lane} = tl.load(row{lane} + {VIEW})",
                f"view{lane} = tl.load(views_p + seen{lane} * view_stride + i, mask=m)",
            ]
        if owns:
            lines.append(f"own{lane} = tl.load(row{lane} + {OWN}) * own_stride + i")
        lines += [f"{o}{lane} = tl.load({o}_p + own{lane}, mask=m)" for o in owns]
        return lines

    def one_update(lane: str, at: str) -> list[str]:
        lines = [f"grad = grad{lane}"]
        if program.reads_view:
            lines.append(f"view = view{lane}")
        lines += [f"{o} = {o}{lane}" for o in owns]
        count = program.coefficients
        lines += [f"c{i} = tl.load(coefficients_p + {count} * ({at}) + {i})" for i in range(count)]
        for step in program.steps:
            args = [constants.get(arg, arg) for arg in step.args]
            lines.append(f"{step.name} = {_FORMS[step.op].format(*args)}")
        after = program.outputs
        moved = ["theta", *states]
        lines.append(f"sent = {after['sent']}")
        lines += [f"tl.store({o}_p + own{lane}, {after[o]}, mask=m)" for o in owns]
        # All at once: one name's new value must not reach another's.
        lines.append(f"{', '.join(moved)} = {', '.join(after[s] for s in moved)}")
        lines += [
            f"out = tl.load(row{lane} + {OUT})",
            "tl.store(views_p + out * view_stride + i, sent, mask=m & (out >= 0))",
        ]
        return lines

    body: list[str] = ["whole = begin + (end - begin) // AHEAD * AHEAD"]
    body.append("for w in range(begin, whole, AHEAD):")
    for lane in range(AHEAD):
        body += [f"    {line}" for line in one_load(f"_{lane}", f"w + {lane}")]
    for lane in range(AHEAD):
        body += [f"    {line}" for line in one_update(f"_{lane}", f"w + {lane}")]
    body.append("for w in range(whole, end):")
    body += [f"    {line}" for line in one_load("_0", "w") + one_update("_0", "w")]
    text = "\n".join(f"    {line}" for line in body)
    loads = "\n".join(f"    {t} = tl.load({t}_p + i, mask=m)" for t in ["theta", *states])
    stores = "\n".join(f"    tl.store({t}_p + i, {t}, mask=m)" for t in ["theta", *states])
    more, mine = "", ""
    if stacked:
        more = " blocks, coefficient_stride,"
        replica = "(tl.program_id(0) // blocks).to(tl.int64)"
        mine = f"\n    coefficients_p = coefficients_p + {replica} * coefficient_stride"
    return f"""
import triton
import triton.language as tl

AHEAD = tl.constexpr({AHEAD})


@triton.jit
def window(
    {pointers}, grads_p, views_p, rows_p, coefficients_p, windows_p, batch_p,
    size, own_stride, grad_stride, view_stride,{more}
):
    i = (tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK})).to(tl.int64)
    m = i < size{mine}
    zero = tl.zeros(({BLOCK},), dtype={real})
    one = zero + 1.0
{given}
    batch = tl.load(batch_p)
    begin = tl.load(windows_p + batch)
    end = tl.load(windows_p + batch + 1)
{loads}
{text}
{stores}
"""


def _is_literal(text: str) -> bool:
    return text[0] in "-0123456789in"


@cache
def _imported(source: str) -> Any:
    """Triton reads a kernel's text from its file, so it needs one."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "tardigrad" / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    name = "window_" + hashlib.sha256(source.encode()).hexdigest()[:24]
    path = folder / f"{name}.py"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(source)
    os.replace(partial, path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import the kernel {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.window

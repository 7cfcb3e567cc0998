"""Window kernels for the CPU: C++ written from a rule's program, compiled once and kept.

Blocks of parameters go to the cores; within a block, all updates of a window run one after another
while θ and the state lie in the first-level cache.

Numbers below the smallest normal one (1.2e-38 in float32) count as zero here. Averages of squares
reach them wherever a gradient stays at zero, and many processors take a hundred times as long for
each: a window of FASGD took 370 µs an update instead of 40. No such number matters to a result.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tardigrad.engine.kernels.compiler import shared_library
from tardigrad.engine.kernels.pieces import Factors, Piece, PieceShape
from tardigrad.engine.kernels.products import PRODUCTS
from tardigrad.engine.kernels.trace import Program
from tardigrad.engine.kernels.update_table import COLUMNS, GRAD, OUT, OWN, VIEW

BLOCK = 1024
CACHE_BYTES = 32 * 2**20
"""Views that take more than this are not found in a cache when they are read."""
_FORMS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "rsub": "{1} - {0}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "fma": "std::fma({0}, {1}, {2})",
    "fma3": "{0} + {3} * {1} * {2}",
    "lerp": "{0} + {2} * ({1} - {0})",
    "sqrt": "std::sqrt({0})",
    "abs": "std::fabs({0})",
    "neg": "-{0}",
    "exp": "std::exp({0})",
    "reciprocal": "real(1) / {0}",
    "at_least": "({0} < {1} ? {1} : {0})",
    "zero": "real(0)",
    "one": "real(1)",
    "copy": "{0}",
}


class CppKernel:
    """A rule's windows on the CPU; see `kernels.window_kernel`."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.program = program
        self._function = shared_library(window_source(program, dtype)).window
        self._function.restype = ctypes.c_long
        self._function.argtypes = _ARGUMENTS

    def bound(
        self,
        theta: Tensor,
        states: Sequence[Tensor],
        owns: Sequence[Tensor],
        shapes: Sequence[PieceShape],
        views: Tensor,
        rows: Tensor,
        coefficients: Tensor,
    ) -> "BoundWindows":
        """Windows over these buffers, which are changed in place and must stay where they are.

        shapes: of the pieces in which gradients come.
        """
        fixed = (
            len(shapes),
            _longs([number for shape in shapes for number in shape]),
            theta.data_ptr(),
            _pointers([*states, *owns]),
            owns[0].stride(0) if owns else 0,
            views.data_ptr(),
            views.stride(0),
            rows.data_ptr(),
            coefficients.data_ptr(),
            views.numel() * views.element_size() > CACHE_BYTES,
        )
        held = (theta, *states, *owns, views, rows, coefficients)
        return BoundWindows(self._function, fixed, held)


class BoundWindows:
    """Bound once, because handing over all buffers takes Python as long as a small update."""

    def __init__(
        self, function: "ctypes._NamedFuncPointer", fixed: Sequence[Any], held: Sequence[Tensor]
    ) -> None:
        self._function, self._fixed, self._held = function, fixed, held

    def run(self, grads: Sequence[Piece], begin: int, end: int) -> bool:
        """Updates `begin` to `end` − 1; whether all of θ is finite after them."""
        places = _longs([number for piece in grads for number in _place(piece)])
        return not self._function(begin, end, torch.get_num_threads(), places, *self._fixed)


def _place(piece: Piece) -> tuple[int, ...]:
    """The fields of the kernel's `Piece`."""
    if isinstance(piece, Factors):
        left, right = piece
        there = (right.data_ptr(), *right.stride()[:2], right.shape[1])
        return (left.data_ptr(), *left.stride(), *there)
    return (piece.data_ptr(), piece.stride(0), 0, 0, 0, 0, 0, 0)


_ARGUMENTS = (
    *(ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_void_p),
    *(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long),
    *(ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
)


def _pointers(tensors: Sequence[Tensor]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(t.data_ptr() for t in tensors))


def _longs(numbers: Sequence[int]) -> Any:
    return (ctypes.c_long * len(numbers))(*numbers)


_HELPERS = """
// Past the caches: the next reader comes long after they have forgotten it.
static void write_past(real *to, const real *from, long count) {
  long bytes = count * sizeof(real), done = 0;
#ifdef __AVX__
  if (((uintptr_t)to & 31) == 0)
    for (; done + 32 <= bytes; done += 32)
      _mm256_stream_si256((__m256i *)((char *)to + done),
                          _mm256_load_si256((const __m256i *)((const char *)from + done)));
#endif
  std::memcpy((char *)to + done, (const char *)from + done, bytes - done);
}

// All gradients of one tensor: the numbers of each; or, with terms, the two factors of each.
struct Piece {
  const real *left;
  long left_gradient, left_row, left_term;
  const real *right;
  long right_gradient, right_term, terms;
};

struct Shape {
  long numbers, columns;
};

// How a tensor is cut into blocks: some rows, and some columns of them. Where a block's gradients
// are products, its rows share what is read of the right side, and so do blocks above each other.
struct Cut {
  long rows, columns, rows_each, columns_each, down, across;
  Cut(const Shape &shape, long terms) {
    columns = shape.columns;
    rows = shape.numbers / columns;
    const bool few = terms < 3;  // then a block is better read straight through
    const bool some = terms < 64;  // then longer rows count for more than sharing the right side
    rows_each = few ? 1 : some ? TILE_ROWS : 2 * TILE_ROWS;
    columns_each = std::min(columns, few ? BLOCK : some ? BLOCK / 8 : BLOCK / 16);
    across = columns / columns_each;
    const long rest = columns % columns_each;
    if (few ? rest > 0 : rest >= LANES) ++across;  // else it goes with the last block
    down = (rows + rows_each - 1) / rows_each;
  }
  long blocks() const { return down * across; }
};
static_assert(2 * TILE_ROWS * (BLOCK / 16 + LANES - 1) <= BLOCK, "a block's products have room");
static_assert(TILE_ROWS * (BLOCK / 8 + LANES - 1) <= BLOCK, "and so have fewer, longer rows");
"""


def window_source(program: Program, dtype: torch.dtype) -> str:
    real = {torch.float32: "float", torch.float64: "double"}[dtype]
    states = [f"s{i}" for i in range(program.states)]
    owns = [f"o{i}" for i in range(program.owns)]
    coefficients = "\n".join(
        f"      const real c{i} = coefficients[w * {program.coefficients} + {i}];"
        for i in range(program.coefficients)
    )
    pointers = "\n".join(
        [
            *(f"      real *{s}_ = tensors[{i}] + at;" for i, s in enumerate(states)),
            *(
                f"      real *{o}_ = tensors[{len(states) + i}] + row[{OWN}] * own_stride + at;"
                for i, o in enumerate(owns)
            ),
        ]
    )
    loads = "\n".join(
        [
            "        const real theta = theta_[i], grad = grad_[i];",
            *(["        const real view = view_[i];"] if program.reads_view else []),
            *(f"        const real {s} = {s}_[i];" for s in [*states, *owns]),
        ]
    )
    steps = "\n".join(
        f"        const real {step.name} = {_FORMS[step.op].format(*map(_real, step.args))};"
        for step in program.steps
    )
    after = program.outputs
    stores = "\n".join(f"        {s}_[i] = {after[s]};" for s in ["theta", *states, *owns])
    return f"""
#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __AVX__
#include <immintrin.h>
#endif
typedef {real} real;
static const long BLOCK = {BLOCK};

{PRODUCTS}{_HELPERS}
// Returns how many blocks of θ are not finite after it.
extern "C" long window(
    long begin, long end, long threads, const Piece *grads, long pieces, const Shape *shapes,
    real *thetas, real **tensors, long own_stride, real *views, long view_stride, const long *rows,
    const real *coefficients, int past_caches) {{
  long blocks = 0, not_finite = 0;
  for (long p = 0; p < pieces; ++p) blocks += Cut(shapes[p], grads[p].terms).blocks();
  #pragma omp parallel num_threads(threads) reduction(+ : not_finite)
  {{
#ifdef __AVX__
  const unsigned as_before = _mm_getcsr();
  _mm_setcsr(as_before | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
#endif
  #pragma omp for schedule(static)
  for (long block = 0; block < blocks; ++block) {{
    long which = 0, here = block, start = 0;
    Cut cut(shapes[0], grads[0].terms);
    while (here >= cut.blocks()) {{
      here -= cut.blocks();
      start += shapes[which++].numbers;
      cut = Cut(shapes[which], grads[which].terms);
    }}
    const Piece &piece = grads[which];
    const long top = here % cut.down * cut.rows_each, left = here / cut.down * cut.columns_each;
    const long lines = std::min(cut.rows_each, cut.rows - top);
    const bool last = here / cut.down == cut.across - 1;
    const long count = last ? cut.columns - left : cut.columns_each;
    alignas(64) real products_[BLOCK];
    for (long w = begin; w < end; ++w) {{
      const long *row = rows + {COLUMNS} * w;
{coefficients}
      const real *left_ = piece.left + row[{GRAD}] * piece.left_gradient;
      if (piece.terms) {{
        const real *right_ = piece.right + row[{GRAD}] * piece.right_gradient + left;
        const Side one = {{left_ + top * piece.left_row, piece.left_row, piece.left_term}};
        multiply(products_, count, one, {{right_, 1, piece.right_term}}, piece.terms, lines, count);
      }}
      for (long line = 0; line < lines; ++line) {{
      const long at = start + (top + line) * cut.columns + left;
      real *theta_ = thetas + at;
      const real *grad_ = piece.terms ? products_ + line * count : left_ + left;
      const real *view_ = views + row[{VIEW}] * view_stride + at;
      real *out_ = row[{OUT}] < 0 ? nullptr : views + row[{OUT}] * view_stride + at;
{pointers}
      alignas(64) real sent_[BLOCK];
      real *to_ = out_ && !past_caches ? out_ : sent_;
      #pragma omp simd
      for (long i = 0; i < count; ++i) {{
{loads}
{steps}
{stores}
        to_[i] = {after["sent"]};
      }}
      if (out_ && past_caches) write_past(out_, sent_, count);
      }}
    }}
    real zero = 0;
    for (long line = 0; line < lines; ++line) {{
      const real *theta_ = thetas + start + (top + line) * cut.columns + left;
      #pragma omp simd reduction(+ : zero)
      for (long i = 0; i < count; ++i) zero += theta_[i] * real(0);
    }}
    not_finite += !(zero == 0);
#ifdef __AVX__
    _mm_sfence();  // others may read what went past the caches
#endif
  }}
#ifdef __AVX__
  _mm_setcsr(as_before);  // torch's own operations run on these threads, too
#endif
  }}
  return not_finite;
}}
"""


def _real(text: str) -> str:
    """Literals take the kernel's type; names stay."""
    return f"real({text})" if text[0] in "-0123456789in" else text

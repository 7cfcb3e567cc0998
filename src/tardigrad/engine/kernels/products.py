"""Products of matrices on the CPU: C++ that window kernels contain, and that gradients call.

A tile of the result is summed up in registers, each number in the same order wherever it lies in a
tile, so no bit depends on how a matrix is cut. A library's product first packs what it multiplies,
which pays only for many rows; and the one that torch brings (MKL) uses half of the width of other
makers' processors: 90 instead of 200 billion operations a second on a core of an AMD with AVX-512.
"""

import ctypes
from functools import cache

import torch
from torch import Tensor

from tardigrad.engine.kernels.compiler import shared_library

MOST_TERMS = 2048
"""Of more terms, what a tile of a product reads no longer stays in the nearest caches."""
LEAST_TERMS = 96
"""Where numbers lie along the terms: with fewer, adding up what the lanes hold takes longer."""
WIDEST = 64
"""Bytes of the longest vector. Where numbers lie along the columns, rows shorter than that are
better left to a library."""

PRODUCTS = """
#include <algorithm>

// As many registers as there are hold a tile: sums, and what is multiplied.
#if defined(__AVX512F__)
enum { VECTOR = 64, TILE_ROWS = 6, TILE_VECTORS = 4, DOT_ROWS = 5, DOT_COLUMNS = 5 };
#elif defined(__AVX__)
enum { VECTOR = 32, TILE_ROWS = 6, TILE_VECTORS = 2, DOT_ROWS = 3, DOT_COLUMNS = 4 };
#else
enum { VECTOR = 16, TILE_ROWS = 6, TILE_VECTORS = 2, DOT_ROWS = 3, DOT_COLUMNS = 4 };
#endif
enum { LANES = VECTOR / sizeof(real), TILE_COLUMNS = TILE_VECTORS * LANES };
typedef real vec __attribute__((vector_size(VECTOR)));
typedef real unaligned __attribute__((vector_size(VECTOR), aligned(sizeof(real)), may_alias));

// A matrix: where it begins, and how far it is to the next row and the next term. Of a right side,
// "row" is to the next column of the product.
struct Side {
  const real *at;
  long row, term;
};

// The first few numbers from here, and zeros.
static inline vec first(const real *at, long few) {
  vec all = {};
  for (long n = 0; n < few; ++n) all[n] = at[n];
  return all;
}

template <int ROWS, int VECTORS>
static inline void tile(real *__restrict to, long to_row, Side left, Side right, long terms) {
  vec sums[ROWS][VECTORS];
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < VECTORS; ++v) sums[i][v] = vec{};
  for (long t = 0; t < terms; ++t, left.at += left.term, right.at += right.term) {
    vec across[VECTORS];
    for (int v = 0; v < VECTORS; ++v) across[v] = *(const unaligned *)(right.at + v * LANES);
    for (int i = 0; i < ROWS; ++i) {
      const real one = left.at[i * left.row];
      for (int v = 0; v < VECTORS; ++v) sums[i][v] += one * across[v];
    }
  }
  for (int i = 0; i < ROWS; ++i)
    for (int v = 0; v < VECTORS; ++v)
      *(unaligned *)(to + i * to_row + v * LANES) = sums[i][v];
}

// What is left at an edge is done again together with its neighbours, where there are enough.
template <int ROWS>
static inline void tile_rows(real *to, long to_row, Side left, Side right, long terms,
                             long columns) {
  const auto from = [&](long at) { return Side{right.at + at, 1, right.term}; };
  long at = 0;
  for (; at + TILE_COLUMNS <= columns; at += TILE_COLUMNS)
    tile<ROWS, TILE_VECTORS>(to + at, to_row, left, from(at), terms);
  for (; at < columns && columns >= LANES; at += LANES) {
    at = std::min(at, columns - LANES);
    tile<ROWS, 1>(to + at, to_row, left, from(at), terms);
  }
  if (columns >= LANES) return;
  vec sums[ROWS] = {};
  for (long t = 0; t < terms; ++t) {
    const vec across = first(right.at + t * right.term, columns);
    for (int i = 0; i < ROWS; ++i) sums[i] += left.at[i * left.row + t * left.term] * across;
  }
  for (int i = 0; i < ROWS; ++i)
    for (long j = 0; j < columns; ++j) to[i * to_row + j] = sums[i][j];
}

// to[i][j] = Σ over terms t of left[i][t] · right[t][j], whose numbers of a term lie side by side.
static void multiply(real *to, long to_row, Side left, Side right, long terms, long rows,
                     long columns) {
  const auto from = [&](long i) { return Side{left.at + i * left.row, left.row, left.term}; };
  long i = 0;
  for (; i < rows && rows >= TILE_ROWS; i += TILE_ROWS) {
    i = std::min(i, rows - TILE_ROWS);
    tile_rows<TILE_ROWS>(to + i * to_row, to_row, from(i), right, terms, columns);
  }
  for (; i < rows; ++i)
    tile_rows<1>(to + i * to_row, to_row, from(i), right, terms, columns);
}
"""

_LIBRARY = """
template <int N> struct Total {
  typedef real whole __attribute__((vector_size(N * sizeof(real))));
  typedef real half __attribute__((vector_size(N * sizeof(real) / 2)));
  static inline real of(whole x) {
    union { whole all; half halves[2]; } both;
    both.all = x;
    return Total<N / 2>::of(both.halves[0] + both.halves[1]);
  }
};
template <> struct Total<2> {
  typedef real whole __attribute__((vector_size(2 * sizeof(real))));
  static inline real of(whole x) { return x[0] + x[1]; }
};

template <int ROWS, int COLUMNS>
static inline void dot_tile(real *__restrict to, long to_row, Side left, Side right, long terms) {
  vec sums[ROWS][COLUMNS], down[ROWS], lanes;
  for (int n = 0; n < LANES; ++n) lanes[n] = n;
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j) sums[i][j] = vec{};
  long t = 0;
  for (; t + LANES <= terms; t += LANES) {
    for (int i = 0; i < ROWS; ++i) down[i] = *(const unaligned *)(left.at + i * left.row + t);
    for (int j = 0; j < COLUMNS; ++j) {
      const vec across = *(const unaligned *)(right.at + j * right.row + t);
      for (int i = 0; i < ROWS; ++i) sums[i][j] += down[i] * across;
    }
  }
  if (t < terms && terms >= LANES) {  // the last few again, without those that were counted
    const long back = terms - LANES;
    const auto counted = lanes < real(t - back);
    const auto rest = [&](const real *at) {
      const vec all = *(const unaligned *)(at + back);
      return vec(decltype(counted)(all) & ~counted);
    };
    for (int i = 0; i < ROWS; ++i) down[i] = rest(left.at + i * left.row);
    for (int j = 0; j < COLUMNS; ++j) {
      const vec across = rest(right.at + j * right.row);
      for (int i = 0; i < ROWS; ++i) sums[i][j] += down[i] * across;
    }
  } else if (t < terms) {
    for (int i = 0; i < ROWS; ++i) down[i] = first(left.at + i * left.row + t, terms - t);
    for (int j = 0; j < COLUMNS; ++j) {
      const vec across = first(right.at + j * right.row + t, terms - t);
      for (int i = 0; i < ROWS; ++i) sums[i][j] += down[i] * across;
    }
  }
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j) to[i * to_row + j] = Total<LANES>::of(sums[i][j]);
}

template <int COLUMNS>
static inline void dot_columns(real *to, long to_row, Side left, Side right, long terms,
                               long rows) {
  const auto from = [&](long i) { return Side{left.at + i * left.row, left.row, 1}; };
  const real *next = right.at + COLUMNS * right.row, *end = next + COLUMNS * terms;
  const long each = COLUMNS * terms / (rows / DOT_ROWS + 1) + 1;
  long i = 0;
  for (; i < rows && rows >= DOT_ROWS; i += DOT_ROWS) {
    for (long n = 0; n < each && next < end; n += LANES, next += LANES) __builtin_prefetch(next);
    i = std::min(i, rows - DOT_ROWS);
    dot_tile<DOT_ROWS, COLUMNS>(to + i * to_row, to_row, from(i), right, terms);
  }
  for (; i < rows; ++i) dot_tile<1, COLUMNS>(to + i * to_row, to_row, from(i), right, terms);
}

// The same where the numbers of each row of `left` and of each column of `right` do.
static void dots(real *to, long to_row, Side left, Side right, long terms, long rows,
                 long columns) {
  const auto from = [&](long j) { return Side{right.at + j * right.row, right.row, 1}; };
  long j = 0;
  for (; j < columns && columns >= DOT_COLUMNS; j += DOT_COLUMNS) {
    j = std::min(j, columns - DOT_COLUMNS);
    dot_columns<DOT_COLUMNS>(to + j, to_row, left, from(j), terms, rows);
  }
  for (; j < columns; ++j) dot_columns<1>(to + j, to_row, left, from(j), terms, rows);
}

// A part of a product for a thread, of whose sides one stays in its second-level cache.
static const long NUMBERS = (1 << 19) / sizeof(real);
static long part(long whole, long terms, long tile) {
  const long most = std::max(tile, NUMBERS / std::max(1L, terms) / tile * tile);
  return std::min(whole, most);
}

extern "C" void products(
    long threads, long count, long rows, long columns, long terms, real *to, const real *left,
    long left_each, long left_row, long left_term, const real *right, long right_each,
    long right_row, long right_term) {
  if (count * rows * columns == 0) return;
  const bool along = left_term == 1 && right_term == 1;
  const long high = along ? long(DOT_ROWS) : TILE_ROWS;
  const long wide = along ? long(DOT_COLUMNS) : TILE_COLUMNS;
  const long down = part(rows, terms, high), across = part(columns, terms, wide);
  const long tops = (rows + down - 1) / down, lefts = (columns + across - 1) / across;
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (long n = 0; n < count * lefts * tops; ++n) {
    const long which = n / (lefts * tops), at = n / tops % lefts * across, top = n % tops * down;
    const Side one = {left + which * left_each + top * left_row, left_row, left_term};
    const Side other = {right + which * right_each + at * right_row, right_row, right_term};
    (along ? dots : multiply)(to + (which * rows + top) * columns + at, columns, one, other, terms,
                              std::min(down, rows - top), std::min(across, columns - at));
  }
}
"""


def suits(left: Tensor, right: Tensor) -> bool:
    """Whether `batch_products` is faster for such matrices, if many are multiplied at once."""
    if left.dtype not in (torch.float32, torch.float64):
        return False
    if along_terms(left, right):
        return LEAST_TERMS <= left.shape[2] <= MOST_TERMS
    wide = right.shape[2] * right.element_size() >= WIDEST
    return right.stride(2) == 1 and wide and 0 < left.shape[2] <= MOST_TERMS


def along_terms(left: Tensor, right: Tensor) -> bool:
    """Whether the numbers of each row of `left` and of each column of `right` lie side by side."""
    return left.stride(2) == 1 and right.stride(1) == 1


def readable(left: Tensor, right: Tensor) -> bool:
    """Whether `batch_products` reads them where they lie, and need not copy them."""
    return right.stride(2) == 1 or along_terms(left, right)


def batch_products(left: Tensor, right: Tensor) -> Tensor:
    """`torch.bmm`."""
    if not readable(left, right):
        left, right = left.contiguous(), right.contiguous()
    (count, rows, terms), columns = left.shape, right.shape[2]
    out = left.new_empty(count, rows, columns)
    sides = (left.data_ptr(), *left.stride(), right.data_ptr(), *right.mT.stride())
    threads = torch.get_num_threads()
    _function(left.dtype)(threads, count, rows, columns, terms, out.data_ptr(), *sides)
    return out


def library_source(dtype: torch.dtype) -> str:
    real = {torch.float32: "float", torch.float64: "double"}[dtype]
    return f"typedef {real} real;\n{PRODUCTS}{_LIBRARY}"


def function_of(built: ctypes.CDLL) -> "ctypes._NamedFuncPointer":
    function = built.products
    at, number = ctypes.c_void_p, ctypes.c_long
    function.restype = None
    function.argtypes = [*(number,) * 5, at, *(at, number, number, number) * 2]
    return function


@cache
def _function(dtype: torch.dtype) -> "ctypes._NamedFuncPointer":
    return function_of(shared_library(library_source(dtype)))

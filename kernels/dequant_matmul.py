"""A linear layer whose weights lie in memory as packed whole numbers of a few bits: y = x W', W = scale (level - zero).

Packing: the levels of one row of W, along the input dimension, are one stream of bits, lowest bit first; 32 levels fill ``bits`` words of 32 bits
exactly. So 3 bits cost 3 bits (10 levels in a word would cost 3.2, and 576 columns are no multiple of 10), and a level may lie across two
words. GPTQ's kernels use the same stream. Shapes: x (..., K), levels (N, K) from 0 to 2^bits - 1, words (N, ceil(K / 32) bits) int32,
scale and zero (N, G), G groups of K / G neighbouring columns, y (..., N). Where the columns were permuted before they were
grouped, x is to be permuted likewise. Forward only; products are added in fp32 whatever the dtype of x.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from kernels import launching, use_triton

RUN = 32  # levels that end where a word ends, whatever the bits
DECODE_ROWS = 4  # rows of x up to which a product of 16 rows on the tensor cores would mostly multiply nothing
PREFILL_WARPS = 8


class Packed(NamedTuple):
    """words (N, ceil(K / 32) bits) int32; scale and zero (N, G) in any floating type; bits 1 to 8; columns: K."""

    words: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor
    bits: int
    columns: int


def _places(bits: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """(word, shift), each (32), int64: where a level of a run begins."""
    first = torch.arange(RUN, device=device) * bits
    return first // 32, first % 32


def pack(levels: torch.Tensor, bits: int) -> torch.Tensor:
    """levels (N, K), whole numbers from 0 to 2^bits - 1, as words (N, ceil(K / 32) bits) int32. Raises ValueError for others.

    >>> pack(torch.tensor([[1, 2, 7]]), 3).tolist()
    [[465, 0, 0]]
    """
    if levels.dim() != 2 or not levels.numel() or levels.is_floating_point():
        raise ValueError(f"levels must be whole numbers of shape (N, K), not {levels.dtype} of shape {tuple(levels.shape)}")
    if not 1 <= bits <= 8:
        raise ValueError(f"bits is {bits}, not 1 to 8")
    if int(levels.min()) < 0 or int(levels.max()) >= 2**bits:
        raise ValueError(f"levels reach from {int(levels.min())} to {int(levels.max())}; {bits} bits hold 0 to {2**bits - 1}")
    rows, columns = levels.shape
    runs = torch.nn.functional.pad(levels.long(), (0, -columns % RUN)).view(rows, -1, RUN)
    word, shift = _places(bits, levels.device)
    placed = runs << shift
    # No two levels share a bit, so that a sum of words is their union. The last level of a run ends with its word: nothing is left over there.
    words = torch.zeros(rows, runs.shape[1], bits + 1, dtype=torch.long, device=levels.device)
    words.index_add_(2, word, placed & 0xFFFFFFFF).index_add_(2, word + 1, placed >> 32)
    signed = words[..., :bits]
    return torch.where(signed >= 2**31, signed - 2**32, signed).to(torch.int32).reshape(rows, -1)


def unpack(words: torch.Tensor, bits: int, columns: int) -> torch.Tensor:
    """levels (N, K) int32 of words (N, ceil(K / 32) bits); ``columns``: K. Raises ValueError where the words are not so many.

    >>> unpack(torch.tensor([[465, 0, 0]], dtype=torch.int32), 3, 3).tolist()
    [[1, 2, 7]]
    """
    _check_words(words, bits, columns)
    runs = torch.nn.functional.pad((words.long() & 0xFFFFFFFF).view(words.shape[0], -1, bits), (0, 1))
    word, shift = _places(bits, words.device)
    pairs = runs[..., word] | runs[..., word + 1] << 32
    return (pairs >> shift & 2**bits - 1).to(torch.int32).reshape(words.shape[0], -1)[:, :columns]


def dequantise(packed: Packed) -> torch.Tensor:
    """W (N, K) fp32 = scale (level - zero). Raises ValueError for shapes that do not fit.

    >>> dequantise(Packed(pack(torch.tensor([[0, 7]]), 3), torch.tensor([[0.5]]), torch.tensor([[4.0]]), 3, 2)).tolist()
    [[-2.0, 1.5]]
    """
    _check_groups(packed)
    levels = unpack(packed.words, packed.bits, packed.columns)
    width = packed.columns // packed.scale.shape[1]
    scale, zero = (x.float().repeat_interleave(width, 1) for x in (packed.scale, packed.zero))
    return scale * (levels - zero)


def reference(x: torch.Tensor, packed: Packed) -> torch.Tensor:
    """y (..., N) in the dtype of x, by weights that are first unpacked and rounded to that dtype. Raises ValueError for shapes that do not fit."""
    _check(x, packed)
    return x @ dequantise(packed).to(x.dtype).T


def op(x: torch.Tensor, packed: Packed) -> torch.Tensor:
    """As ``reference``; on a CUDA device the weights are unpacked in registers. Raises ValueError there for a wanted gradient."""
    if not use_triton(x):
        return reference(x, packed)
    _check(x, packed)
    launching.require_no_gradient("dequant_matmul", x, packed.scale, packed.zero)
    return launch(x, packed)


def _check_words(words: torch.Tensor, bits: int, columns: int) -> None:
    if words.dim() != 2 or words.dtype != torch.int32 or not 1 <= bits <= 8 or words.shape[1] != -(-columns // RUN) * bits:
        raise ValueError(f"{columns} columns of {bits} bits do not fit words {tuple(words.shape)} of {words.dtype}")


def _check_groups(packed: Packed) -> None:
    scale, zero, rows = packed.scale, packed.zero, packed.words.shape[0]
    if scale.dim() != 2 or scale.shape != zero.shape or scale.shape[0] != rows or not scale.shape[1] or packed.columns % scale.shape[1]:
        raise ValueError(f"scale {tuple(scale.shape)} and zero {tuple(zero.shape)} must be ({rows}, G) with G dividing {packed.columns}")


def _check(x: torch.Tensor, packed: Packed) -> None:
    if not x.dim() or x.shape[-1] != packed.columns:
        raise ValueError(f"x {tuple(x.shape)} does not fit weights of {packed.columns} columns")
    _check_words(packed.words, packed.bits, packed.columns)
    _check_groups(packed)


@cache
def triton_kernels() -> tuple[Any, Any]:
    """(decode, prefill), found on first use: Triton is imported only where a kernel is."""
    from kernels import _dequant_matmul_triton

    return _dequant_matmul_triton.decode, _dequant_matmul_triton.prefill


def decode_tile() -> dict[str, int]:
    """Sizes of a decoding program's tile: few outputs, so that a narrow layer still gives every multiprocessor work."""
    return {"BLOCK_N": 8, "BLOCK_K": 128}


def prefill_tile(dtype: torch.dtype) -> dict[str, int]:
    """Sizes of a prefilling program's tile: half precision goes to the tensor cores and pays for larger ones."""
    side = 32 if dtype == torch.float32 else 64
    return {"BLOCK_M": side, "BLOCK_N": 64, "BLOCK_K": 32}


def prefill_stages(dtype: torch.dtype) -> int:
    """Steps that are loaded ahead: the addresses of packed weights take registers, which fp32 products have none left of."""
    return 1 if dtype == torch.float32 else 2


def launch(x: torch.Tensor, packed: Packed) -> torch.Tensor:
    """y of the Triton kernels, decode for up to 4 rows of x and prefill for more; shapes as ``reference``."""
    rows = x.reshape(-1, packed.columns).contiguous()
    (m, k), n = rows.shape, packed.words.shape[0]
    words, scale, zero = packed.words.contiguous(), packed.scale.contiguous(), packed.zero.contiguous()
    y = torch.empty(m, n, dtype=x.dtype, device=x.device)
    sizes = (words.shape[1], scale.shape[1], k // scale.shape[1])
    decode, prefill = triton_kernels()
    if 0 < m <= DECODE_ROWS:
        tile = decode_tile()
        decode[(-(-n // tile["BLOCK_N"]), m)](rows, words, scale, zero, y, n, k, *sizes, BITS=packed.bits, **tile)
    elif m:
        tile = prefill_tile(x.dtype)
        widen = x.dtype == torch.bfloat16 and not x.is_cuda  # the interpreter, which alone runs this on a CPU, multiplies bf16 wrongly
        grid = (-(-m // tile["BLOCK_M"]), -(-n // tile["BLOCK_N"]))
        prefill[grid](
            rows, words, scale, zero, y, m, n, k, *sizes, BITS=packed.bits, WIDEN=widen, num_warps=PREFILL_WARPS, num_stages=prefill_stages(x.dtype), **tile
        )
    return y.reshape(*x.shape[:-1], n)

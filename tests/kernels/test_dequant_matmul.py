"""Packed weights of a few bits: the round trip, the stream bit by bit, and the product. The kernels themselves: test_kernels.py."""

from __future__ import annotations

import pytest
import torch

from kernels import dequant_matmul
from kernels.dequant_matmul import Packed
from tests.kernels.interpreted import draw_packed, relative


@pytest.mark.parametrize("columns", [1, 10, 31, 32, 33, 576])
@pytest.mark.parametrize("bits", range(1, 9))
def test_packing_and_unpacking_lose_nothing(bits: int, columns: int) -> None:
    levels = torch.randint(2**bits, (7, columns), generator=torch.Generator().manual_seed(bits))
    levels[0], levels[1] = 0, 2**bits - 1  # every bit of a word, its sign too
    words = dequant_matmul.pack(levels, bits)
    assert words.dtype == torch.int32
    assert words.shape == (7, -(-columns // 32) * bits)
    assert torch.equal(dequant_matmul.unpack(words, bits, columns).long(), levels)


@pytest.mark.parametrize("bits", [3, 4])
def test_the_words_are_one_stream_of_bits(bits: int) -> None:
    """The row as one long whole number of Python, level k at bit k * bits, cut into words of 32 bits."""
    levels = torch.randint(2**bits, (3, 96), generator=torch.Generator().manual_seed(0))
    words = dequant_matmul.pack(levels, bits)
    for row, line in zip(levels.tolist(), words.tolist(), strict=True):
        stream = sum(level << k * bits for k, level in enumerate(row))
        assert [word % 2**32 for word in line] == [stream >> 32 * j & 0xFFFFFFFF for j in range(3 * bits)]


def test_three_bits_cost_three_bits() -> None:
    words = dequant_matmul.pack(torch.zeros(1536, 576, dtype=torch.long), 3)
    assert words.numel() * 32 == 3 * 1536 * 576


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-7)])
@pytest.mark.parametrize("bits", [3, 4])
@pytest.mark.parametrize("rows", [1, 4, 5, 33])
def test_the_product_is_that_of_the_dequantised_weights(rows: int, bits: int, dtype: torch.dtype, tolerance: float) -> None:
    """The weights by a loop over groups, in float64."""
    generator = torch.Generator().manual_seed(rows)
    packed = draw_packed((19, 96, 3), bits, generator)
    levels, parts = dequant_matmul.unpack(packed.words, bits, 96).double(), []
    for group in range(3):
        scale, zero = (x[:, group : group + 1].double() for x in (packed.scale, packed.zero))
        parts.append(scale * (levels[:, 32 * group : 32 * (group + 1)] - zero))
    weights = torch.cat(parts, 1)
    assert torch.allclose(dequant_matmul.dequantise(packed).double(), weights, rtol=1e-6, atol=1e-9)
    x = torch.randn(rows, 96, generator=generator).to(dtype)
    found = dequant_matmul.op(x, packed)
    assert found.dtype == dtype
    assert relative(found, x.double() @ weights.T) <= tolerance


def test_leading_dimensions_are_kept() -> None:
    packed = draw_packed((5, 32, 1), 3, torch.Generator().manual_seed(0))
    x = torch.randn(2, 3, 32)
    assert dequant_matmul.op(x, packed).shape == (2, 3, 5)
    assert dequant_matmul.op(x[0, 0], packed).shape == (5,)
    assert dequant_matmul.op(x[:, :0], packed).shape == (2, 0, 5)


def test_what_does_not_fit_is_refused() -> None:
    packed = draw_packed((5, 32, 2), 3, torch.Generator().manual_seed(0))
    x = torch.randn(2, 32)
    with pytest.raises(ValueError, match="0 to 7"):
        dequant_matmul.pack(torch.tensor([[8]]), 3)
    with pytest.raises(ValueError, match="from -1"):
        dequant_matmul.pack(torch.tensor([[-1]]), 3)
    with pytest.raises(ValueError, match="whole numbers"):
        dequant_matmul.pack(torch.ones(2, 2), 3)
    with pytest.raises(ValueError, match="bits is 9"):
        dequant_matmul.pack(torch.tensor([[1]]), 9)
    with pytest.raises(ValueError, match="33 columns of 3 bits do not fit"):
        dequant_matmul.unpack(packed.words, 3, 33)
    with pytest.raises(ValueError, match="do not fit words"):
        dequant_matmul.op(x, packed._replace(bits=4))
    with pytest.raises(ValueError, match="x"):
        dequant_matmul.op(torch.randn(2, 31), packed)
    with pytest.raises(ValueError, match="G dividing 32"):
        dequant_matmul.op(x, packed._replace(scale=packed.scale[:4], zero=packed.zero[:4]))
    with pytest.raises(ValueError, match="G dividing 32"):
        dequant_matmul.dequantise(Packed(packed.words, torch.ones(5, 3), torch.ones(5, 3), 3, 32))

"""Buffers shared with the child: inputs, output and scratch in one memory file, each against a page that cannot be touched.

An array ends at the end of its pages, as far as its alignment of 64 bytes allows; what lies around it inside the pages is filled with a
pattern, so that a write past either end is either a crash or a broken pattern.
"""

from __future__ import annotations

import itertools
import math
import mmap
import os
from collections.abc import Mapping

import numpy as np

from backends.contract import InputError
from backends.kernelband.c.kernels import Extents, Kernel

ALIGNMENT = 64
CANARY = np.uint32(0x7FC0DEAD)  # as a float32 it is NaN, so that a value read from there shows in the result
POOL = 1 << 19
SMALL = POOL // 2
STRETCH = 16  # of a large input a refresh replaces one stretch in so many
EVERY = 7  # of a small one every so many elements, all over it: enough that nothing can be reused, few enough that a fingerprint of it stays
_numbers = itertools.count()


def of_kernel(kernel: Kernel, extents: Extents, rng: np.random.Generator) -> Arena:
    """The buffers of a kernel at these extents."""
    return Arena(kernel.shapes(*extents), kernel.output(*extents), kernel.work(*extents), extents, rng, kernel.scale)


class Arena:
    """The buffers of one call. inputs: shapes by name, in the order of the arguments. truth: the inputs as they must be, out of the child's reach."""

    def __init__(self, inputs: Mapping[str, Extents], output: Extents, work: int, extents: Extents, rng: np.random.Generator, scale: float = 1.0) -> None:
        self.extents, self.number = extents, next(_numbers)
        sizes = [*inputs.values(), output, (work,)]
        self.regions: list[list[int]] = []
        offset = 0
        for size in sizes:
            nbytes = 4 * math.prod(size)
            padded = -(-nbytes // ALIGNMENT) * ALIGNMENT
            length = -(-padded // mmap.PAGESIZE) * mmap.PAGESIZE
            self.regions.append([offset, length, length - padded])
            offset += length
        self.nbytes = offset
        self.descriptor = os.memfd_create("kernelband")
        try:
            os.ftruncate(self.descriptor, offset)
            self._memory = mmap.mmap(self.descriptor, offset)
        except OSError:
            os.close(self.descriptor)
            raise InputError("size", f"its buffers of {offset / 1e6:.0f} MB cannot be had", "choose a smaller size") from None
        whole = np.frombuffer(self._memory, np.uint32)
        self._around: list[np.ndarray] = []
        arrays: list[np.ndarray] = []
        for size, (start, length, data) in zip(sizes, self.regions, strict=True):
            first, count = (start + data) // 4, math.prod(size)
            arrays.append(whole[first : first + count].view(np.float32).reshape(size))
            self._around += [whole[start // 4 : first], whole[first + count : (start + length) // 4]]
        for gap in self._around:
            gap[:] = CANARY
        *given, self.output, self._work = arrays
        self.shared = dict(zip(inputs, given, strict=True))
        self._rng = rng
        self._pool = rng.standard_normal(POOL, np.float32) * np.float32(scale)
        self.truth = {name: rng.standard_normal(shape, np.float32) * np.float32(scale) for name, shape in inputs.items()}
        for name, value in self.truth.items():
            self.shared[name][...] = value

    def refresh(self) -> None:
        """Replaces a part of each input at places that no kernel can foresee, and fills the output with NaN.

        Not everything: a kernel that takes unchanged samples for unchanged inputs is to give itself away.
        """
        for name, value in self.truth.items():
            flat, seen = value.reshape(-1), self.shared[name].reshape(-1)
            if flat.size <= SMALL:
                part = slice(int(self._rng.integers(min(EVERY, flat.size))), None, EVERY)
            else:
                count = min(SMALL, flat.size // STRETCH)
                start = int(self._rng.integers(flat.size - count + 1))
                part = slice(start, start + count)
            changed = flat[part]
            source = int(self._rng.integers(POOL - changed.size + 1))
            changed[:] = self._pool[source : source + changed.size]
            seen[part] = changed
        self.output.fill(np.nan)

    def clear_work(self) -> None:
        """Fills the scratch with NaN: nothing that an earlier call left there can be of use."""
        self._work.fill(np.nan)

    def changed_input(self) -> str | None:
        """The name of an input that is no longer what it must be; it is put right again."""
        found = None
        for name, value in self.truth.items():
            if not np.array_equal(value, self.shared[name]):
                self.shared[name][...] = value
                found = found or name
        return found

    def outside_written(self) -> bool:
        """True when a pattern around a buffer is broken; it is put right again."""
        broken = False
        for gap in self._around:
            if (gap != CANARY).any():
                gap[:] = CANARY
                broken = True
        return broken

    def close(self) -> None:
        """Gives the memory back once the last view of it is gone."""
        os.close(self.descriptor)

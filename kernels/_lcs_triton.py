"""The Triton kernels of ``kernels.lcs``. A module of its own: the interpreter finds the functions that a kernel calls only among its globals."""

from __future__ import annotations

import triton
import triton.language as tl

# Where each constant stands in the table that a kernel reads: centre (0), gain (3), shift (6), then the cone.
BLACK = tl.constexpr(9)
AXIS = tl.constexpr(12)
HUE = tl.constexpr(15)
HUES = tl.constexpr(6)


@triton.jit
def arccos(x):
    # Abramowitz and Stegun 4.4.46, error below 2e-8 on [0, 1]: libdevice is closed to the interpreter.
    y = x.abs()
    p = -0.0012624911
    p = p * y + 0.0066700901
    p = p * y - 0.0170881256
    p = p * y + 0.0308918810
    p = p * y - 0.0501743046
    p = p * y + 0.0889789874
    p = p * y - 0.2145988016
    p = p * y + 1.5707963050
    p = p * tl.sqrt(tl.maximum(1.0 - y, 0.0))
    return tl.where(x < 0.0, 3.14159265 - p, p)


@triton.jit
def sine(x):
    # Of an angle from 0 to pi, error below 1e-7. The library's reduces any angle first, for which it takes a stack.
    y = tl.minimum(x, 3.14159265 - x)
    z = y * y
    p = -2.5052108e-8
    p = p * z + 2.7557319e-6
    p = p * z - 1.9841270e-4
    p = p * z + 8.3333333e-3
    p = p * z - 1.6666667e-1
    return y + y * z * p


@triton.jit
def modulo(x, period):
    return x - tl.floor(x / period) * period


@triton.jit
def project(x, basis_ptr, table_ptr, column, row: tl.constexpr):
    b = tl.load(basis_ptr + row * 64 + column)
    c = tl.sum(x * b[None, :], 1) - tl.load(table_ptr + row)
    return c * tl.load(table_ptr + 3 + row) + tl.load(table_ptr + 6 + row)


@triton.jit
def to_hsl(c0, c1, c2, table_ptr):
    b0, b1, b2 = tl.load(table_ptr + BLACK), tl.load(table_ptr + BLACK + 1), tl.load(table_ptr + BLACK + 2)
    a0, a1, a2 = tl.load(table_ptr + AXIS), tl.load(table_ptr + AXIS + 1), tl.load(table_ptr + AXIS + 2)
    along = ((c0 - b0) * a0 + (c1 - b1) * a1 + (c2 - b2) * a2) / (a0 * a0 + a1 * a1 + a2 * a2)
    lightness = tl.minimum(along.abs(), 1.0)
    v0, v1, v2 = c0 - b0 - along * a0, c1 - b1 - along * a1, c2 - b2 - along * a2
    best, next_best = tl.full(c0.shape, 3.0e38, tl.float32), tl.full(c0.shape, 3.0e38, tl.float32)
    nearest, second_nearest = tl.zeros(c0.shape, tl.int32), tl.zeros(c0.shape, tl.int32)
    for k in tl.static_range(HUES):
        d0 = v0 - tl.load(table_ptr + HUE + 3 * k)
        d1 = v1 - tl.load(table_ptr + HUE + 3 * k + 1)
        d2 = v2 - tl.load(table_ptr + HUE + 3 * k + 2)
        distance = d0 * d0 + d1 * d1 + d2 * d2
        is_first, is_second = distance < best, distance < next_best
        second_nearest = tl.where(is_first, nearest, tl.where(is_second, k, second_nearest))
        next_best = tl.where(is_first, best, tl.where(is_second, distance, next_best))
        nearest = tl.where(is_first, k, nearest)
        best = tl.where(is_first, distance, best)
    low, high = tl.minimum(nearest, second_nearest), tl.maximum(nearest, second_nearest)
    wraps = high - low > HUES // 2
    first, second = tl.where(wraps, high, low), tl.where(wraps, low, high)
    f0, f1, f2 = tl.load(table_ptr + HUE + 3 * first), tl.load(table_ptr + HUE + 3 * first + 1), tl.load(table_ptr + HUE + 3 * first + 2)
    g0, g1, g2 = tl.load(table_ptr + HUE + 3 * second), tl.load(table_ptr + HUE + 3 * second + 1), tl.load(table_ptr + HUE + 3 * second + 2)
    length = tl.sqrt(v0 * v0 + v1 * v1 + v2 * v2)
    f_length, g_length = tl.sqrt(f0 * f0 + f1 * f1 + f2 * f2), tl.sqrt(g0 * g0 + g1 * g1 + g2 * g2)
    cosine = (v0 * f0 + v1 * f1 + v2 * f2) / (tl.maximum(length, 1e-8) * f_length)
    between = (g0 * f0 + g1 * f1 + g2 * f2) / (g_length * f_length)
    p = arccos(tl.minimum(tl.maximum(cosine, 0.0), 1.0)) / arccos(tl.minimum(tl.maximum(between, 0.0), 1.0))
    step = (second - first + HUES * wraps.to(tl.int32)).to(tl.float32)
    hue = modulo((first.to(tl.float32) + p * step) / HUES, 1.0)
    radius = (1.0 - p) * f_length + p * g_length
    saturation = length / (radius * (1.0 - (2.0 * lightness - 1.0).abs()) + 1e-8)
    return hue, saturation, lightness


@triton.jit
def channel(hue, chroma, lightness, n: tl.constexpr):
    k = modulo(hue * 12.0 + n, 12.0)
    value = lightness - chroma * tl.maximum(tl.minimum(tl.minimum(k - 3.0, 9.0 - k), 1.0), -1.0)
    return tl.minimum(tl.maximum(value, 0.0), 1.0)


@triton.jit
def write(out_ptr, token, a, b, c, inside):
    tl.store(out_ptr + token * 3, a, mask=inside)
    tl.store(out_ptr + token * 3 + 1, b, mask=inside)
    tl.store(out_ptr + token * 3 + 2, c, mask=inside)


@triton.jit
def observe_kernel(x_ptr, basis_ptr, table_ptr, coordinates_ptr, hsl_ptr, rgb_ptr, tokens, CLIP: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column, inside = tl.arange(0, 64), token < tokens
    x = tl.load(x_ptr + token[:, None] * 64 + column[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
    c0 = project(x, basis_ptr, table_ptr, column, 0)
    c1 = project(x, basis_ptr, table_ptr, column, 1)
    c2 = project(x, basis_ptr, table_ptr, column, 2)
    hue, saturation, lightness = to_hsl(c0, c1, c2, table_ptr)
    write(coordinates_ptr, token, c0, c1, c2, inside)
    chroma = saturation * tl.minimum(lightness, 1.0 - lightness)
    if CLIP:
        saturation = tl.minimum(saturation, 1.0)
    write(hsl_ptr, token, hue, saturation, lightness, inside)
    write(rgb_ptr, token, channel(hue, chroma, lightness, 0), channel(hue, chroma, lightness, 8), channel(hue, chroma, lightness, 4), inside)


@triton.jit
def blended(c, encoded, move_ptr, table_ptr, picture, gamma, row: tl.constexpr):
    shift = tl.load(move_ptr + picture * 6 + row)
    return (gamma * shift + (1.0 - gamma) * (encoded - c)) / tl.load(table_ptr + 3 + row)


@triton.jit
def steer_kernel(x_ptr, mask_ptr, move_ptr, basis_ptr, table_ptr, out_ptr, tokens, length, gamma, CLIP: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column, inside = tl.arange(0, 64), token < tokens
    picture = tl.where(inside, token // length, 0)
    at = token[:, None] * 64 + column[None, :]
    kept = tl.load(x_ptr + at, mask=inside[:, None], other=0.0)
    x = kept.to(tl.float32)
    c0 = project(x, basis_ptr, table_ptr, column, 0)
    c1 = project(x, basis_ptr, table_ptr, column, 1)
    c2 = project(x, basis_ptr, table_ptr, column, 2)
    hue, saturation, lightness = to_hsl(c0, c1, c2, table_ptr)
    hue = modulo(hue + tl.load(move_ptr + picture * 6 + 3), 1.0)
    if CLIP:
        saturation = tl.minimum(saturation, 1.0)
    saturation = tl.minimum(tl.maximum(saturation + tl.load(move_ptr + picture * 6 + 4), 0.0), 1.0)
    lightness = tl.minimum(tl.maximum(lightness + tl.load(move_ptr + picture * 6 + 5), 0.0), 1.0)
    position = hue * HUES
    first = tl.minimum(tl.floor(position), HUES - 1.0).to(tl.int32)
    p = position - first.to(tl.float32)
    second = tl.where(first == HUES - 1, 0, first + 1)
    f0, f1, f2 = tl.load(table_ptr + HUE + 3 * first), tl.load(table_ptr + HUE + 3 * first + 1), tl.load(table_ptr + HUE + 3 * first + 2)
    g0, g1, g2 = tl.load(table_ptr + HUE + 3 * second), tl.load(table_ptr + HUE + 3 * second + 1), tl.load(table_ptr + HUE + 3 * second + 2)
    f_length, g_length = tl.sqrt(f0 * f0 + f1 * f1 + f2 * f2), tl.sqrt(g0 * g0 + g1 * g1 + g2 * g2)
    psi = arccos(tl.minimum(tl.maximum((g0 * f0 + g1 * f1 + g2 * f2) / (g_length * f_length), -1.0), 1.0))
    reach = saturation * ((1.0 - p) * f_length + p * g_length) * (1.0 - (2.0 * lightness - 1.0).abs()) / sine(psi)
    f_weight, g_weight = reach * sine((1.0 - p) * psi) / f_length, reach * sine(p * psi) / g_length
    e0 = tl.load(table_ptr + BLACK) + lightness * tl.load(table_ptr + AXIS) + f_weight * f0 + g_weight * g0
    e1 = tl.load(table_ptr + BLACK + 1) + lightness * tl.load(table_ptr + AXIS + 1) + f_weight * f1 + g_weight * g1
    e2 = tl.load(table_ptr + BLACK + 2) + lightness * tl.load(table_ptr + AXIS + 2) + f_weight * f2 + g_weight * g2
    m0 = blended(c0, e0, move_ptr, table_ptr, picture, gamma, 0)
    m1 = blended(c1, e1, move_ptr, table_ptr, picture, gamma, 1)
    m2 = blended(c2, e2, move_ptr, table_ptr, picture, gamma, 2)
    x += m0[:, None] * tl.load(basis_ptr + column)[None, :]
    x += m1[:, None] * tl.load(basis_ptr + 64 + column)[None, :]
    x += m2[:, None] * tl.load(basis_ptr + 128 + column)[None, :]
    chosen = tl.load(mask_ptr + token, mask=inside, other=0) != 0
    tl.store(out_ptr + at, tl.where(chosen[:, None], x.to(out_ptr.dtype.element_ty), kept), mask=inside[:, None])

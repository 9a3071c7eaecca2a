"""FLOPs and bytes: closed forms written down again from shapes, and counted loads."""

import inspect
import math

import numpy as np
import pytest
import torch

from utils import cost
from utils.cost import Work

F16, F32, BF16, I8 = torch.float16, torch.float32, torch.bfloat16, torch.int8
FUNCTIONS = {name: fn for name, fn in inspect.getmembers(cost, inspect.isfunction)
             if fn.__module__ == cost.__name__ and not name.startswith("_")}


def size(*shapes: tuple) -> int:
    return sum(math.prod(shape) for shape in shapes)


# function → [(arguments, FLOPs, [shapes read and written], bytes an element, compute roof, memory roof)]
CLOSED = {
    "copy": [((1001, F16), 0, [(1001,)] * 2, 2, "fp16", "copy"), ((7, I8), 0, [(7,)] * 2, 1, "int8", "copy")],
    "add": [((1001, BF16), 1001, [(1001,)] * 3, 2, "fp32", "copy")],
    "axpy": [((999, F32), 999 + 999, [(999,)] * 3, 4, "fp32", "copy")],
    "fma_chain": [((64, 5, F32), 64 * 5 + 64 * 5, [(64,)] * 2, 4, "fp32", "copy"),
                  ((64, 0, F16), 0, [(64,)] * 2, 2, "fp32", "copy")],
    "elementwise": [((10, F16), 10, [(10,)] * 2, 2, "fp32", "copy"),
                    ((10, F16, 3, 7), 70, [(10,)] * 4, 2, "fp32", "copy")],
    "silu": [((50, F16), 50 * (1 + 1 + 1 + 1), [(50,)] * 2, 2, "fp32", "copy")],
    "transpose": [((3, 5, F32), 0, [(3, 5), (5, 3)], 4, "fp32", "copy")],
    "embedding": [((6, 10, F16), 0, [(6, 10), (6, 10), (4 * 6,)], 2, "fp16", "copy"),  # an id is 8 bytes, 4 × 2
                  ((6, 10, F16, 4), 0, [(6, 10), (6, 10), (2 * 6,)], 2, "fp16", "copy"),
                  ((6, 10, F16, 8, 3), 0, [(3, 10), (6, 10), (4 * 6,)], 2, "fp16", "copy")],  # 3 different rows
    "strided_copy": [((1001, F16), 0, [(1001,)] * 2, 2, "fp16", "copy")],
    "strided_copy_bytes": [((100, 1, F32), None, [(104,), (100,)], 4, None, None),     # 12.5 sectors are 13
                           ((100, 64, F16), None, [(100, 16), (100,)], 2, None, None),  # a sector each
                           ((100, 64, F16, 64), None, [(100, 32), (100,)], 2, None, None)],
    "sum_rows": [((3, 7, F16), 3 * 6, [(3, 7), (2 * 3,)], 2, "fp32", "read"),
                 ((3, 0, F32), 0, [(3,)], 4, "fp32", "read")],
    "sum_all": [((1000, F32), 999, [(1000,), (1,)], 4, "fp32", "read"), ((0, F32), 0, [(0,), (1,)], 4, "fp32", "read")],
    "softmax": [((3, 7, F16), 5 * 21, [(3, 7)] * 2, 2, "fp32", "copy")],
    "softmax_bytes": [((3, 7, 3, F16), None, [(3, 7)] * 4, 2, None, None),
                      ((3, 7, 1, F32), None, [(3, 7)] * 2, 4, None, None)],
    "softmax_backward": [((3, 7, F16), 21 + 21 + 21 + 21, [(3, 7)] * 3, 2, "fp32", "copy")],
    "cross_entropy": [((3, 7, F16), 4 * 21, [(3, 7), (3, 4), (3, 2), (3, 2)], 2, "fp32", "read")],  # 8 B = 4 × 2
    "cross_entropy_grad": [((3, 7, F32), 5 * 21, [(3, 7), (3, 7), (3, 2), (3,)], 4, "fp32", "copy")],
    "linear_cross_entropy": [((3, 5, 7, BF16), 2 * 105 + 4 * 15, [(3, 7), (5, 7), (3, 4), (3, 2), (3, 2)], 2,
                              "bf16", "read")],
    "rms_norm": [((3, 7, F32), 4 * 21, [(3, 7), (7,), (3, 7)], 4, "fp32", "copy")],
    "layer_norm": [((3, 7, F16), 7 * 21, [(3, 7), (7,), (7,), (3, 7)], 2, "fp32", "copy")],
    "add_rms_norm": [((3, 7, F16), 5 * 21, [(3, 7), (3, 7), (7,), (3, 7), (3, 7)], 2, "fp32", "copy")],
    "rms_norm_backward": [((3, 7, F32), 9 * 21, [*[(3, 7)] * 3, (7,), (7,), (3,)], 4, "fp32", "copy"),
                          ((4, 7, BF16), 9 * 28, [*[(4, 7)] * 3, (7,), (7,), (2 * 4,)], 2, "fp32", "copy")],
    "layer_norm_backward": [((3, 7, F16), 13 * 21, [*[(3, 7)] * 3, *[(7,)] * 3, (6,), (6,)], 2, "fp32", "copy")],
    "gemm": [((3, 5, 7, F16), 3 * 5 * 7 * 2, [(3, 7), (7, 5), (3, 5)], 2, "fp16", "copy"),
             ((3, 5, 7, I8, torch.int32), 210, [(3, 7), (7, 5), *[(3, 5)] * 4], 1, "int8", "copy"),
             ((1, 64, 512, BF16), 2 * 64 * 512, [(1, 512), (512, 64), (1, 64)], 2, "bf16", "read")],
    "tiled_gemm_bytes": [((4, 6, 5, 4, 3, F16), None, [(4, 5), (4, 5), (5, 6), (4, 6)], 2, None, None)],
    "attention": [((2, 4, 3, 5, 8, F16), 2 * 4 * (2 * 3 * 5 * 8 + 2 * 3 * 8 * 5),
                   [(2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 3, 8)], 2, "fp16", "copy"),
                  ((1, 8, 1, 640, 16, BF16, True, 2), 8 * 4 * 640 * 16,
                   [(8, 16), (2, 640, 16), (2, 640, 16), (8, 16)], 2, "bf16", "read")],
    "gelu_chain": [((3, 7, F16), 11 * 21, [(3, 7), (7,), (7,), (3, 7)], 2, "fp32", "copy")],
    "gelu_chain_separate": [((3, 7, F32), (1 + 9 + 1) * 21,  # add, GELU, scale: each reads and writes
                             [(3, 7), (7,), (3, 7), *[(3, 7)] * 2, (3, 7), (7,), (3, 7)], 4, "fp32", "copy")],
    "linear_silu_separate": [((3, 5, 7, F16), 2 * 105 + 15 + 4 * 15,
                              [(3, 7), (7, 5), (5,), (3, 5), (3, 5), (3, 5)], 2, "fp16", "copy")],
    "silu_mul": [((50, F16), 50 * (4 + 1), [(50,)] * 3, 2, "fp32", "copy")],
    "silu_mul_backward": [((50, BF16), 50 * (4 + 1 + 1 + 3 + 2), [(50,)] * (3 + 2), 2, "fp32", "copy")],
    "gate_up": [((3, 5, 7, F16), 2 * (2 * 105) + 15 * 5, [(3, 7), (7, 5), (7, 5), (3, 5)], 2, "fp16", "copy"),
                ((1, 64, 512, BF16), 4 * 64 * 512 + 64 * 5, [(1, 512), (512, 128), (1, 64)], 2, "bf16", "read")],
    "gate_up_separate": [((3, 5, 7, F16), 2 * (2 * 105) + 15 * 5,
                          [(3, 7), (7, 5), (3, 5)] * 2 + [(3, 5)] * (2 + 3), 2, "fp16", "copy")],
    "swiglu_ffn": [((3, 5, 7, F32), 3 * (2 * 105) + 15 * 5,
                    [(3, 7), (7, 5), (7, 5), (5, 7), (3, 7)], 4, "fp32", "copy"),
                   ((1, 64, 512, BF16), 6 * 64 * 512 + 64 * 5, [(1, 512), (512, 192), (1, 512)], 2, "bf16", "read")],
    "split_k_bytes": [((3, 5, 7, 4, F16), None, [(3, 7), (7, 5), (3, 5), *[(4, 3, 5)] * 4], 2, None, None),
                      ((3, 5, 7, 1, F32), None, [(3, 7), (7, 5), (3, 5)], 4, None, None)],
    "grouped_gemm": [((6, 5, 7, 3, F16), 6 * 5 * 7 * 2, [(6, 7), (3, 5, 7), (6, 5)], 2, "fp16", "copy"),
                     ((2, 64, 512, 2, BF16), 2 * 2 * 64 * 512, [(2, 512), (2, 64, 512), (2, 64)], 2, "bf16", "read")],
    "conv2d": [((2, 8, 9, 3, 5, 3, 2, F16), 2 * (2 * 6 * 8 * 5) * (3 * 2 * 3),
                [(2, 8, 9, 3), (5, 3, 2, 3), (2, 6, 8, 5)], 2, "fp16", "copy"),
               ((1, 8, 8, 64, 1, 3, 3, BF16, 2, 1), 2 * (4 * 4) * (3 * 3 * 64),
                [(8, 8, 64), (3, 3, 64), (4, 4)], 2, "bf16", "read")],
    "im2col": [((2, 8, 9, 3, 3, 2, F16), 0, [(2, 8, 9, 3), (2, 6, 8, 3, 2, 3)], 2, "fp16", "copy"),
               ((1, 7, 7, 4, 3, 3, F32, 2, 1), 0, [(7, 7, 4), (4, 4, 3, 3, 4)], 4, "fp32", "copy")],
    "depthwise_conv2d": [((2, 8, 9, 16, 3, 3, F16, 1, 1), 2 * (2 * 8 * 9 * 16) * 9,
                          [(2, 8, 9, 16), (3, 3, 16), (2, 8, 9, 16)], 2, "fp32", "copy")],
}


def test_every_cost_function_has_a_closed_form_here():
    assert set(CLOSED) == set(FUNCTIONS)


@pytest.mark.parametrize("name", CLOSED)
def test_flops_and_bytes_are_those_of_the_shapes(name):
    for args, flops, shapes, item, dtype, roof in CLOSED[name]:
        got, total = FUNCTIONS[name](*args), size(*shapes) * item
        assert got == (total if flops is None else Work(flops, total, dtype, roof)), (name, args)


# --- counted, not derived ------------------------------------------------------------------------


def tiled_gemm(a: np.ndarray, b: np.ndarray, block_m: int, block_n: int, block_k: int) -> tuple[np.ndarray, int]:
    """(A·B, elements loaded and stored) of a GEMM that goes tile by tile and keeps nothing between tiles."""
    (m, k), n = a.shape, b.shape[1]
    c, moved = np.full((m, n), np.nan), 0
    for i in range(0, m, block_m):
        for j in range(0, n, block_n):
            acc = 0.0
            for p in range(0, k, block_k):
                tile_a, tile_b = a[i:i + block_m, p:p + block_k], b[p:p + block_k, j:j + block_n]
                moved += tile_a.size + tile_b.size
                acc = acc + tile_a @ tile_b
            c[i:i + block_m, j:j + block_n] = acc
            moved += acc.size
    return c, moved


@pytest.mark.parametrize("tile", [(1, 1, 1), (4, 4, 4), (16, 8, 4), (8, 16, 32), (5, 7, 3), (13, 29, 17), (64, 64, 64),
                                  (26, 29, 34)], ids=lambda t: "×".join(map(str, t)))


def test_tiled_gemm_bytes_equal_the_counted_loads(tile):
    m, n, k = 26, 29, 17  # no tile but the last ones divides all three
    a, b = np.random.default_rng(0).standard_normal((m, k)), np.random.default_rng(1).standard_normal((k, n))
    c, moved = tiled_gemm(a, b, *tile)
    assert np.allclose(c, a @ b)
    assert cost.tiled_gemm_bytes(m, n, k, tile[0], tile[1], F16) == 2 * moved
    assert cost.tiled_gemm_bytes(m, n, k, tile[0], tile[1], F32) == 4 * moved


@pytest.mark.parametrize("dtype", [F16, F32, I8], ids=str)
@pytest.mark.parametrize("stride", [1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 64, 100])
@pytest.mark.parametrize("sector", [32, 64])
def test_strided_copy_bytes_equal_the_counted_sectors(stride, dtype, sector):
    for n in (1, 2, 17, 1000):
        first = np.arange(n) * stride * dtype.itemsize
        touched = {int(byte) // sector for byte in np.add.outer(first, np.arange(dtype.itemsize)).ravel()}
        assert cost.strided_copy_bytes(n, stride, dtype, sector) == sector * len(touched) + n * dtype.itemsize
    assert cost.strided_copy_bytes(0, stride, dtype, sector) == 0


@pytest.mark.parametrize("name", ["stride", "sector"])
def test_a_strided_copy_without_steps_or_pieces_is_named_in_one_sentence(name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        cost.strided_copy_bytes(**arguments("strided_copy_bytes") | {name: 0})


def softmax_counted(x: np.ndarray, block: int, reads: int) -> tuple[np.ndarray, int]:
    """(softmax of the rows, elements loaded and stored): max, sum and write apart, online, or the row kept."""
    y, moved = np.full_like(x, np.nan), 0
    starts = range(0, x.shape[1], block)
    for r in range(x.shape[0]):
        def load(start: int) -> np.ndarray:
            nonlocal moved
            moved += len(x[r, start:start + block])
            return x[r, start:start + block]

        if reads == 1:
            row = load(0)
            m, d = row.max(), np.exp(row - row.max()).sum()
        elif reads == 2:
            m, d = -np.inf, 0.0
            for start in starts:
                part = load(start)
                new = max(m, part.max())
                m, d = new, d * np.exp(m - new) + np.exp(part - new).sum()
        else:
            m = max(load(start).max() for start in starts)
            d = sum(np.exp(load(start) - m).sum() for start in starts)
        for start in starts:
            part = row if reads == 1 else load(start)
            y[r, start:start + block] = np.exp(part - m) / d
            moved += len(part)
    return y, moved


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_softmax_bytes_equal_the_counted_loads_and_stores(reads):
    x = np.random.default_rng(0).standard_normal((5, 77))
    block = 77 if reads == 1 else 16
    y, moved = softmax_counted(x, block, reads)
    assert np.allclose(y, np.exp(x) / np.exp(x).sum(1, keepdims=True))
    assert cost.softmax_bytes(5, 77, reads, F16) == 2 * moved


def test_one_read_moves_the_compulsory_bytes_of_a_softmax():
    assert cost.softmax_bytes(9, 70, 1, F16) == cost.softmax(9, 70, F16).bytes


def test_fusing_the_linear_layer_saves_writing_and_reading_the_logits():
    m, v, k = 6, 50, 8
    apart = cost.gemm(m, v, k, F16).bytes + cost.cross_entropy(m, v, F16).bytes
    assert apart - cost.linear_cross_entropy(m, v, k, F16).bytes == 2 * m * v * 2


def test_one_tile_moves_no_more_than_the_compulsory_bytes():
    assert cost.tiled_gemm_bytes(100, 90, 80, 128, 128, F16) == cost.gemm(100, 90, 80, F16).bytes


@pytest.mark.parametrize("s_q, s_k", [(1, 1), (1, 9), (7, 7), (5, 12), (12, 5), (64, 1), (33, 34), (0, 4), (4, 0)])
def test_causal_attention_counts_the_pairs_that_are_seen(s_q, s_k):
    pairs = sum(j - (s_k - 1) <= i - (s_q - 1) for i in range(s_q) for j in range(s_k))  # the last sees the last
    work = cost.attention(3, 2, s_q, s_k, 8, F16, causal=True)
    assert work.flops == 3 * 2 * pairs * 4 * 8
    assert work.bytes == cost.attention(3, 2, s_q, s_k, 8, F16).bytes


def test_kv_heads_shrink_the_bytes_of_keys_and_values_only():
    all_heads, few = (cost.attention(1, 8, 16, 16, 4, F16, kv_heads=h) for h in (8, 2))
    assert all_heads.flops == few.flops
    assert all_heads.bytes - few.bytes == 2 * (8 - 2) * 16 * 4 * 2


def test_fusing_bias_and_silu_saves_one_read_and_one_write_of_c():
    m, n, k = 64, 48, 32
    bias = n * 2
    assert cost.linear_silu_separate(m, n, k, F16).bytes == cost.gemm(m, n, k, F16).bytes + bias + 2 * m * n * 2


def norm_by_rows(x: np.ndarray, gamma: np.ndarray, reads: int) -> tuple[np.ndarray, int]:
    """(RMSNorm, elements moved) row by row, each row loaded `reads` times, gamma once."""
    y, moved = np.full_like(x, np.nan), gamma.size
    for i in range(len(x)):
        for _ in range(reads):
            row = x[i].copy()
            moved += row.size
        y[i] = row / np.sqrt((row * row).mean() + 1e-5) * gamma
        moved += row.size
    return y, moved


def test_rms_norm_bytes_equal_the_counted_loads_of_one_read():
    x, gamma = np.random.default_rng(0).standard_normal((9, 33)), np.ones(33)
    y, moved = norm_by_rows(x, gamma, 1)
    assert np.isfinite(y).all() and cost.rms_norm(9, 33, F16).bytes == 2 * moved
    assert 2 * norm_by_rows(x, gamma, 2)[1] == cost.rms_norm(9, 33, F16).bytes + 2 * x.size


def test_fusing_the_residual_saves_one_read_of_the_sum():
    rows, cols = 9, 33
    apart = cost.add(rows * cols, F16).bytes + cost.rms_norm(rows, cols, F16).bytes
    assert apart - cost.add_rms_norm(rows, cols, F16).bytes == rows * cols * 2


def test_fusing_gate_and_up_saves_one_read_of_x_and_six_passes_over_the_hidden_layer():
    m, f, k = 64, 48, 32
    assert cost.gate_up_separate(m, f, k, F16).bytes - cost.gate_up(m, f, k, F16).bytes == (m * k + 6 * m * f) * 2
    merged = cost.gemm(m, 2 * f, k, F16).bytes + cost.silu_mul(m * f, F16).bytes  # one wide GEMM, one fused kernel
    assert merged - cost.gate_up(m, f, k, F16).bytes == 4 * m * f * 2


def swiglu_block(x: np.ndarray, w: np.ndarray, block_m: int, block_f: int, block_k: int) -> tuple[np.ndarray, int]:
    """(silu(gate)·up, elements loaded and stored), tile by tile, gate and up in alternate columns of w."""
    (m, k), f = x.shape, w.shape[1] // 2
    z, moved = np.full((m, f), np.nan), 0
    for i in range(0, m, block_m):
        for j in range(0, f, block_f):
            acc = 0.0
            for p in range(0, k, block_k):
                tile_x, tile_w = x[i:i + block_m, p:p + block_k], w[p:p + block_k, 2 * j:2 * (j + block_f)]
                moved += tile_x.size + tile_w.size
                acc = acc + tile_x @ tile_w
            gate, up = acc[:, 0::2], acc[:, 1::2]
            z[i:i + block_m, j:j + block_f] = gate / (1 + np.exp(-gate)) * up
            moved += gate.size
    return z, moved


@pytest.mark.parametrize("tile", [(64, 64, 64), (26, 29, 3), (8, 5, 4), (1, 1, 1)], ids=lambda t: "×".join(map(str, t)))
def test_the_fused_block_moves_a_wide_gemm_without_half_of_its_result(tile):
    m, f, k = 26, 29, 17
    x, w = np.random.default_rng(0).standard_normal((m, k)), np.random.default_rng(1).standard_normal((k, 2 * f))
    z, moved = swiglu_block(x, w, *tile)
    y = x @ w
    assert np.allclose(z, y[:, 0::2] / (1 + np.exp(-y[:, 0::2])) * y[:, 1::2])
    wide = cost.tiled_gemm_bytes(m, 2 * f, k, tile[0], 2 * tile[1], F16)
    assert 2 * moved == wide - m * f * 2
    if tile[0] >= m and tile[1] >= f:
        assert 2 * moved == cost.gate_up(m, f, k, F16).bytes


@pytest.mark.parametrize("size, kernel, stride, padding", [(8, 3, 1, 0), (8, 3, 1, 1), (7, 3, 2, 1), (5, 1, 3, 0),
                                                            (2, 3, 1, 0),
                                                           (9, 4, 3, 2)])


def test_a_convolution_counts_the_windows_that_fit(size, kernel, stride, padding):
    starts = [i for i in range(-padding, size + padding) if i + kernel <= size + padding][::stride]
    work = cost.conv2d(1, size, kernel, 1, 1, kernel, kernel, F16, stride, padding)
    across = len([i for i in range(-padding, kernel + padding) if i + kernel <= kernel + padding][::stride])
    assert work.flops == 2 * len(starts) * across * kernel * kernel


@pytest.mark.parametrize("name", ["conv2d", "im2col", "depthwise_conv2d"])
def test_a_stride_of_nothing_is_named_in_one_sentence(name):
    with pytest.raises(ValueError, match="^stride must be"):
        FUNCTIONS[name](**arguments(name) | {"stride": 0})


def test_no_slices_are_named_in_one_sentence():
    with pytest.raises(ValueError, match="^splits must be"):
        cost.split_k_bytes(2, 3, 4, 0, F16)


# --- Work ----------------------------------------------------------------------------------------


def test_works_add_up_and_keep_a_roof_only_if_they_share_it():
    copies, reads = Work(3, 10, "fp16", "copy"), Work(4, 20, "fp16", "read")
    assert reads + reads == Work(8, 40, "fp16", "read")
    assert copies + reads == Work(7, 30, "fp16", "copy") == reads + copies
    assert copies == Work(3, 10, "fp16", "copy"), "addition changes nothing in place"


def test_works_under_different_compute_roofs_do_not_add_up():
    with pytest.raises(ValueError, match="fp16.*fp32"):
        Work(1, 1, "fp16") + Work(1, 1, "fp32")


def test_intensity_is_flops_per_byte_also_at_the_edges():
    assert Work(12, 8).intensity == 1.5
    assert Work(0, 8).intensity == 0 and Work(0, 0).intensity == 0 and Work(1, 0).intensity == math.inf


# --- bad input -----------------------------------------------------------------------------------


def sizes_of(name: str) -> list[str]:
    """Parameters of a function that are counts."""
    return [p.name for p in inspect.signature(FUNCTIONS[name]).parameters.values() if p.annotation in (int, "int")]


def arguments(name: str) -> dict:
    """Good arguments, by name."""
    bound = inspect.signature(FUNCTIONS[name]).bind(*CLOSED[name][0][0])
    bound.apply_defaults()
    return dict(bound.arguments)


@pytest.mark.parametrize("bad", [-1, 2.0, True, "3", None], ids=repr)
@pytest.mark.parametrize("name", CLOSED)
def test_a_bad_size_is_named_in_one_sentence(name, bad):
    assert sizes_of(name)
    for parameter in sizes_of(name):
        with pytest.raises(ValueError) as caught:
            FUNCTIONS[name](**arguments(name) | {parameter: bad})
        assert str(caught.value).startswith(f"{parameter} ") and repr(bad) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", ["fp16", np.float16, None, 2, True], ids=repr)
@pytest.mark.parametrize("name", CLOSED)
def test_what_is_no_dtype_is_named_in_one_sentence(name, bad):
    with pytest.raises(TypeError) as caught:
        FUNCTIONS[name](**arguments(name) | {"dtype": bad})
    assert str(caught.value).startswith("dtype ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", ["int32", np.int32, 4], ids=repr)
def test_what_is_no_output_dtype_is_named_in_one_sentence(bad):
    with pytest.raises(TypeError, match=r"^out must be"):
        cost.gemm(2, 3, 4, I8, out=bad)


@pytest.mark.parametrize("name", ["block_m", "block_n"])
def test_an_empty_tile_is_named_in_one_sentence(name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        cost.tiled_gemm_bytes(**arguments("tiled_gemm_bytes") | {name: 0})


@pytest.mark.parametrize("heads, kv_heads", [(8, 3), (8, 0), (2, 4)])
def test_heads_that_do_not_share_evenly_are_named(heads, kv_heads):
    with pytest.raises(ValueError, match="heads.*multiple of kv_heads"):
        cost.attention(1, heads, 4, 4, 8, F16, kv_heads=kv_heads)

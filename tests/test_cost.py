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
    "sum_rows": [((3, 7, F16), 3 * 6, [(3, 7), (2 * 3,)], 2, "fp32", "read"), ((3, 0, F32), 0, [(3,)], 4, "fp32", "read")],
    "sum_all": [((1000, F32), 999, [(1000,), (1,)], 4, "fp32", "read"), ((0, F32), 0, [(0,), (1,)], 4, "fp32", "read")],
    "softmax": [((3, 7, F16), 5 * 21, [(3, 7)] * 2, 2, "fp32", "copy")],
    "rms_norm": [((3, 7, F32), 4 * 21, [(3, 7), (7,), (3, 7)], 4, "fp32", "copy")],
    "gemm": [((3, 5, 7, F16), 3 * 5 * 7 * 2, [(3, 7), (7, 5), (3, 5)], 2, "fp16", "copy"),
             ((3, 5, 7, I8, torch.int32), 210, [(3, 7), (7, 5), *[(3, 5)] * 4], 1, "int8", "copy"),
             ((1, 64, 512, BF16), 2 * 64 * 512, [(1, 512), (512, 64), (1, 64)], 2, "bf16", "read")],
    "tiled_gemm_bytes": [((4, 6, 5, 4, 3, F16), None, [(4, 5), (4, 5), (5, 6), (4, 6)], 2, None, None)],
    "attention": [((2, 4, 3, 5, 8, F16), 2 * 4 * (2 * 3 * 5 * 8 + 2 * 3 * 8 * 5),
                   [(2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 8), (2, 4, 3, 8)], 2, "fp16", "copy"),
                  ((1, 8, 1, 640, 16, BF16, True, 2), 8 * 4 * 640 * 16,
                   [(8, 16), (2, 640, 16), (2, 640, 16), (8, 16)], 2, "bf16", "read")],
    "linear_silu_separate": [((3, 5, 7, F16), 2 * 105 + 15 + 4 * 15,
                              [(3, 7), (7, 5), (5,), (3, 5), (3, 5), (3, 5)], 2, "fp16", "copy")],
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

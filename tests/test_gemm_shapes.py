"""What the batteries cannot see in lesson 05's operators: how K is cut, who waits for whom, experts without tokens."""

import itertools

import pytest
import torch

import utils  # noqa: F401  (decides GPU or interpreter before triton is imported)
from utils import device
from utils.ops import gemm_shapes as ops

F16, F32 = torch.float16, torch.float32


def rand(*size: int, dtype: torch.dtype = F32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device.DEVICE)


def offsets_of(counts: list[int], dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor([0, *itertools.accumulate(counts)], dtype=dtype, device=device.DEVICE)


# --- split-K -------------------------------------------------------------------------------------

@pytest.mark.parametrize("K, BLOCK_K, splits", list(itertools.product(
    [1, 31, 32, 33, 328, 1000, 4096], [16, 128], [None, 1, 3, 7, 500])))
def test_slices_are_whole_blocks_cover_k_and_none_is_empty(K, BLOCK_K, splits):
    slices, length = ops.split_lengths(rand(1), 2, K, BLOCK_K, splits)
    assert length % BLOCK_K == 0 and (slices - 1) * length < K <= slices * length
    assert splits is None or slices <= splits


def test_a_k_of_zero_has_one_slice():
    assert ops.split_lengths(rand(1), 1, 0, 32, None)[0] == 1


@pytest.mark.parametrize("fn", [ops.split_k_atomic, ops.split_k, ops.gemm_skinny])
def test_splits_of_nothing_are_named(fn):
    with pytest.raises(ValueError, match="^splits must be"):
        fn(rand(3, 40), rand(40, 5), splits=0)


def test_atomics_start_from_zero_and_not_from_the_last_result():
    a, b = rand(5, 130), rand(130, 7)
    first, second = (ops.split_k_atomic(a, b, splits=3) for _ in range(2))
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first.double(), a.double() @ b.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", [ops.split_k, ops.gemm_skinny])
def test_the_workspace_gives_the_same_bits_every_time(fn):
    a, b = rand(5, 330, dtype=F16), rand(330, 40, dtype=F16)
    outputs = [fn(a, b, splits=4) for _ in range(3)]
    assert all(torch.equal(outputs[0], other) for other in outputs)


@pytest.mark.parametrize("M", [1, 15, 16, 17, 64, 65])
def test_any_number_of_tokens_is_right_on_the_narrow_side(M):
    a, b = rand(M, 40), rand(40, 70)
    torch.testing.assert_close(ops.gemm_skinny(a, b).double(), a.double() @ b.double(), rtol=1e-4, atol=1e-4)


def test_gemv_takes_one_row_only():
    with pytest.raises(ValueError, match="^a has 2 rows"):
        ops.gemv(rand(2, 8), rand(8, 3))


# --- grouped GEMM --------------------------------------------------------------------------------

COUNTS = [[7, 0, 0, 5], [0, 0, 9, 0], [0, 3], [3, 0], [1, 1, 1, 1, 1], [65, 0, 64, 1], [0, 0, 12], [130]]


def per_expert(a: torch.Tensor, w: torch.Tensor, counts: list[int]) -> torch.Tensor:
    return torch.cat([rows.double() @ w[e].double().t() for e, rows in enumerate(a.split(counts))])


@pytest.mark.parametrize("fn", [ops.grouped_gemm_pointers, ops.grouped_gemm])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_experts_without_tokens_and_uneven_ones(fn, counts):
    a, w = rand(sum(counts), 32, dtype=F16), rand(len(counts), 24, 32, dtype=F16, seed=1)
    got = fn(a, w, offsets_of(counts))
    torch.testing.assert_close(got.double(), per_expert(a, w, counts), rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("fn", [ops.grouped_gemm_pointers, ops.grouped_gemm])
def test_offsets_may_be_int64(fn):
    a, w = rand(12, 16, dtype=F16), rand(3, 8, 16, dtype=F16, seed=1)
    got = fn(a, w, offsets_of([5, 0, 7], torch.int64))
    torch.testing.assert_close(got.double(), per_expert(a, w, [5, 0, 7]), rtol=2e-3, atol=1e-2)


def index_table(counts: list[int], BLOCK_M: int) -> list[tuple[int, int]]:
    starts = [0, *itertools.accumulate(counts)]
    return [(e, row) for e, n in enumerate(counts) for row in range(starts[e], starts[e] + n, BLOCK_M)]


@pytest.mark.parametrize("counts", [*COUNTS, [0, 0], [16] * 9, [17] * 7, [1] * 40, [500, 1, 0, 3000]], ids=str)
@pytest.mark.parametrize("BLOCK_M", [1, 16, 64])
def test_the_table_lists_every_tile_once_and_has_slots_enough(counts, BLOCK_M):
    table = ops.tile_map(offsets_of(counts), sum(counts), BLOCK_M).tolist()
    expected = index_table(counts, BLOCK_M)
    assert table[0][0] == len(expected) <= len(table) - 1
    assert [tuple(entry) for entry in table[1:1 + len(expected)]] == expected


class NoWaiting(torch.overrides.TorchFunctionMode):
    """Raises where Python asks an integer tensor for its value."""

    ASKS = (torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.__int__, torch.Tensor.__index__, torch.Tensor.__bool__,
            torch.Tensor.__float__, torch.nonzero, torch.Tensor.nonzero)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in self.ASKS or args[0].is_floating_point(), f"the host waits for the GPU: {func.__name__}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("fn", [ops.grouped_gemm_pointers, ops.grouped_gemm])
def test_the_host_never_asks_for_the_offsets(fn):
    a, w, offsets = rand(12, 16, dtype=F16), rand(3, 8, 16, dtype=F16), offsets_of([5, 0, 7])
    fn(a, w, offsets)                                        # compile outside the watch
    if device.ON_GPU:
        torch.cuda.set_sync_debug_mode("error")
    try:
        with NoWaiting():
            fn(a, w, offsets)
    finally:
        if device.ON_GPU:
            torch.cuda.set_sync_debug_mode("default")
    with pytest.raises(AssertionError, match="the host waits"), NoWaiting():
        int(offsets[1])


@pytest.mark.parametrize("offsets, sentence", [
    (torch.zeros(3), "^offsets is float32"), (torch.zeros(4, dtype=torch.int32), "^offsets has shape"),
                                               ([0, 1, 2], "^offsets must be a torch tensor")])
def test_wrong_offsets_are_named(offsets, sentence):
    offsets = offsets.to(device.DEVICE) if isinstance(offsets, torch.Tensor) else offsets
    with pytest.raises((TypeError, ValueError), match=sentence):
        ops.grouped_gemm(rand(4, 8), rand(2, 8, 8), offsets)


# --- convolution ---------------------------------------------------------------------------------

def test_a_channels_last_view_of_an_nchw_image_is_refused():
    with pytest.raises(ValueError, match="^x is not contiguous"):
        ops.conv2d(rand(1, 8, 12, 8).permute(0, 2, 3, 1), rand(4, 3, 3, 8), padding=1)


@pytest.mark.parametrize("x, w, keywords, sentence", [
    ((1, 5, 5, 8), (4, 3, 3, 7), {}, "^w has 7 channels"), ((1, 5, 5, 8), (4, 3, 3, 8), {"stride": 0}, "^stride is 0"),
    ((1, 5, 5, 8), (4, 3, 3, 8), {"padding": -1}, "^stride is 1 and padding -1"),
    ((1, 2, 5, 8), (4, 3, 3, 8), {}, "^w has a window of 3×3"),
    ((5, 5, 8), (4, 3, 3, 8), {}, "^x has 3 dimensions")], ids=str)
def test_a_convolution_names_what_does_not_fit(x, w, keywords, sentence):
    with pytest.raises(ValueError, match=sentence):
        ops.conv2d(rand(*x), rand(*w), **keywords)


def test_a_one_by_one_filter_is_a_product(monkeypatch):
    calls, product = [], ops.gemm
    monkeypatch.setattr(ops, "gemm", lambda *args, **kwargs: calls.append(args) or product(*args, **kwargs))
    ops.conv2d(rand(1, 3, 4, 16), rand(8, 1, 1, 16))
    ops.conv2d(rand(1, 3, 4, 16), rand(8, 1, 1, 16), stride=2)
    assert len(calls) == 1


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
def test_walks_of_any_length_meet_without_a_seam(rows):
    x, w = rand(2, 5, 6, 16), rand(3, 3, 16, seed=1)
    walked, nine = ops.depthwise_conv2d(x, w, 1, 1, ROWS=rows), ops.depthwise_nine(x, w, 1, 1)
    torch.testing.assert_close(walked, nine, rtol=1e-5, atol=1e-5)


def test_other_windows_take_the_general_depthwise_kernel(monkeypatch):
    calls, general = [], ops.depthwise_nine
    monkeypatch.setattr(ops, "depthwise_nine", lambda *args: calls.append(args[2:]) or general(*args))
    x = rand(1, 5, 6, 8)
    for window, stride, padding in ((3, 1, 1), (3, 2, 1), (3, 1, 0), (5, 1, 2)):
        ops.depthwise_conv2d(x, rand(window, window, 8), stride, padding)
    assert calls == [(2, 1), (1, 0), (1, 2)]

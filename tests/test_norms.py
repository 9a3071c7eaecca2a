"""What the batteries cannot see in lesson 07's operators: merged moments, equal bits, ε, large means, refusals."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import utils  # noqa: F401  (decides GPU or interpreter before triton is imported)
from utils import check, device
from utils.ops import norms as ops

EPS = ops.EPS


def rand(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed)).to(device.DEVICE)


def moments(x: np.ndarray) -> tuple:
    """(n, mean, M2) of a set, by definition."""
    return (len(x), x.mean(), ((x - x.mean()) ** 2).sum()) if len(x) else (0, 0.0, 0.0)


# --- Welford ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("cut", [0, 1, 2, 17, 499, 500])
@pytest.mark.parametrize("offset", [0.0, -3.0, 1e6])
def test_merged_moments_are_those_of_the_whole(cut, offset):
    x = np.random.default_rng(cut).standard_normal(500) + offset
    got = ops.merge_moments(*moments(x[:cut]), *moments(x[cut:]))
    assert np.allclose(got, moments(x), rtol=1e-9)


def test_merging_is_associative_and_an_empty_set_changes_nothing():
    a, b, c = (moments(np.random.default_rng(i).standard_normal(n) * n) for i, n in enumerate((3, 40, 500)))
    left = ops.merge_moments(*ops.merge_moments(*a, *b), *c)
    right = ops.merge_moments(*a, *ops.merge_moments(*b, *c))
    assert np.allclose(left, right)
    assert ops.merge_moments(0, 0.0, 0.0, *b) == b == ops.merge_moments(*b, 0, 0.0, 0.0)
    assert ops.merge_moments(0, 0.0, 0.0, 0, 0.0, 0.0) == (0, 0.0, 0.0)


@pytest.mark.parametrize("cols", [1, 31, 64, 65, 200])
def test_the_looped_kernel_merges_blocks_of_any_number(cols):
    x, one, zero = rand(3, cols) + 50, torch.ones(cols, device=device.DEVICE), torch.zeros(cols, device=device.DEVICE)
    y, mean, rstd = ops.layer_norm_looped(x, one, zero, BLOCK=64, num_warps=4)
    exact = x.double()
    torch.testing.assert_close(mean.double(), exact.mean(-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(rstd.double(), 1 / (exact.var(-1, correction=0) + EPS).sqrt(), rtol=1e-4, atol=0)
    check.agree(y, F.layer_norm(exact, (cols,), None, None, EPS), depth=cols, scale=50.0)


# --- variance ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("norm", [ops.layer_norm, lambda *a: ops.layer_norm_looped(*a, BLOCK=256, num_warps=4)[0]],
                         ids=["one read", "looped"])
def test_a_mean_of_ten_thousand_leaves_the_variance_right(norm):
    x, one, zero = rand(4, 1000) + 1e4, torch.ones(1000, device=device.DEVICE), torch.zeros(1000, device=device.DEVICE)
    exact = F.layer_norm(x.double(), (1000,), None, None, EPS)
    assert (norm(x, one, zero).double() - exact).abs().max() < 5e-3
    one_pass = (x.square().mean(-1) - x.mean(-1).square()).double()
    assert ((one_pass / x.double().var(-1) - 1).abs() > 0.05).all(), "E[x²] − E[x]² would not have noticed"


@pytest.mark.parametrize("cols", [1000, 1023, 1025])
def test_tail_columns_do_not_enter_the_variance(cols):
    x, one, zero = rand(3, cols) + 9, torch.ones(cols, device=device.DEVICE), torch.zeros(cols, device=device.DEVICE)
    y = check.call(ops.layer_norm, (x, one, zero))
    assert (y.double().var(-1, correction=0) - 1).abs().max() < 1e-4


def test_large_fp16_rows_do_not_overflow():
    x = torch.full((2, 64), 6e4, dtype=torch.float16, device=device.DEVICE)
    one = torch.ones(64, dtype=torch.float16, device=device.DEVICE)
    for fn in (ops.rms_norm, ops.rms_norm_two_kernels):
        assert torch.equal(fn(x, one), one.expand(2, 64))


# --- epsilon ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", [0.0, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-2])
def test_eps_stands_inside_the_root_as_in_torch(size, eps):
    if size == eps == 0:
        return
    x, one, zero = rand(3, 40) * size, torch.ones(40, device=device.DEVICE), torch.zeros(40, device=device.DEVICE)
    check.agree(ops.rms_norm(x, one, eps), F.rms_norm(x.double(), (40,), None, eps), depth=40)
    check.agree(ops.rms_norm_looped(x, one, eps)[0], F.rms_norm(x.double(), (40,), None, eps), depth=40)
    check.agree(ops.add_rms_norm(x, x, one, eps)[0], F.rms_norm(2 * x.double(), (40,), None, eps), depth=40)
    check.agree(ops.layer_norm(x, one, zero, eps), F.layer_norm(x.double(), (40,), None, None, eps), depth=40)


# --- residual ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("fused", [ops.add_rms_norm, lambda *a: ops.add_rms_norm_looped(*a, BLOCK=64, num_warps=4)],
                         ids=["one read", "looped"])
def test_the_fused_residual_gives_the_bits_of_two_operators(fused):
    x, residual, gamma = (t.half() for t in (rand(5, 200), rand(5, 200, seed=1) * 100, rand(200, seed=2)))
    y, h = fused(x, residual, gamma)
    assert torch.equal(h, x + residual)
    if fused is ops.add_rms_norm:
        assert torch.equal(y, ops.rms_norm(x + residual, gamma))


# --- backward ---------------------------------------------------------------------------------------

def gradients(cols: int, rows: int = 70) -> list[torch.Tensor]:
    """What the four backward operators return, on the same random numbers in every call."""
    x, dy, gamma, beta = rand(rows, cols), rand(rows, cols, seed=1), rand(cols, seed=2), rand(cols, seed=3)
    _, rstd = ops.rms_norm_stats(x, gamma)
    _, mean, rstd_ln = ops.layer_norm_stats(x, gamma, beta)
    return [*ops.rms_norm_backward(dy, x, gamma, rstd), *ops.rms_norm_backward_wide(dy, x, gamma, rstd),
            *ops.layer_norm_backward(dy, x, gamma, mean, rstd_ln),
            *ops.layer_norm_backward_wide(dy, x, gamma, mean, rstd_ln)]


@pytest.mark.parametrize("cols", [33, 1100])
def test_gradients_have_the_same_bits_in_every_run(cols):
    for first, again in zip(gradients(cols), gradients(cols)):
        assert torch.equal(first, again)


def test_forward_statistics_and_backward_fit_together():
    """The whole chain, statistics from the forward kernels, against autograd in float64."""
    x, dy, gamma, beta = rand(70, 48), rand(70, 48, seed=1), rand(48, seed=2), rand(48, seed=3)
    leaves = [t.double().requires_grad_() for t in (x, gamma, beta)]
    F.rms_norm(leaves[0], (48,), leaves[1], EPS).backward(dy.double())
    got = gradients(48)
    for part in (got[:2], got[2:4]):
        for mine, leaf in zip(part, leaves):
            check.agree(mine, leaf.grad, depth=118)
    leaves[0].grad = leaves[1].grad = None
    F.layer_norm(leaves[0], (48,), leaves[1], leaves[2], EPS).backward(dy.double())
    for part in (got[4:7], got[7:]):
        for mine, leaf in zip(part, leaves):
            check.agree(mine, leaf.grad, depth=118)


def test_no_rows_give_a_gradient_of_zeros():
    empty, gamma = torch.empty(0, 24, device=device.DEVICE), torch.ones(24, device=device.DEVICE)
    stat = torch.empty(0, device=device.DEVICE)
    for results in (ops.rms_norm_backward(empty, empty, gamma, stat),
                    ops.layer_norm_backward(empty, empty, gamma, stat, stat)):
        assert results[0].shape == (0, 24) and all(torch.equal(r, 0 * gamma) for r in results[1:])


# --- shapes and launches --------------------------------------------------------------------------------

def test_leading_axes_are_rows_and_weights_may_have_another_dtype():
    x, gamma = rand(2, 3, 20).half(), rand(20, seed=1)
    y, rstd = ops.rms_norm_stats(x, gamma)
    assert y.shape == x.shape and y.dtype == torch.float16 and rstd.shape == (2, 3) and rstd.dtype == torch.float32
    check.agree(y, F.rms_norm(x.double(), (20,), gamma.double(), EPS), depth=20)


@pytest.mark.parametrize("fn, args", [(ops.rms_norm, 1), (ops.layer_norm, 2)], ids=["rms_norm", "layer_norm"])
def test_rows_beyond_the_limit_go_to_the_looped_kernel(fn, args, monkeypatch):
    monkeypatch.setattr(ops, "ONE_READ", 16)
    x, weights = rand(2, 40), [rand(40, seed=i + 1) for i in range(args)]
    plain = fn(x, *weights, ROWS=1, num_warps=4)      # a launch that was asked for is not overruled
    torch.testing.assert_close(fn(x, *weights), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 5000])
def test_every_length_of_row_gets_a_launch(rows):
    for cols in range(1, ops.ONE_READ + 1, 37):
        for launch in (ops.launch_of(rows, cols), ops.launch_of(rows, cols, 2), ops.backward_launch_of(cols, True)):
            for value in launch.values():
                assert value >= 1 and value & (value - 1) == 0
            assert launch["num_warps"] <= 32


def test_who_refuses_what_names_the_argument():
    x, gamma, stat = rand(4, 8), rand(8), torch.ones(4, device=device.DEVICE)
    wrong = [(ops.rms_norm, (x[:, ::2], gamma[:4]), "x is not contiguous"),
             (ops.rms_norm, (x, rand(9)), "gamma has shape"),
             (ops.rms_norm, (x[0, 0], gamma), "x has no axis"), (ops.layer_norm, (x, gamma, rand(7)), "beta has shape"),
             (ops.add_rms_norm, (x, x.half(), gamma), "residual is float16"),
             (ops.rms_norm_backward, (x.half(), x, gamma, stat), "dy is float16"),
             (ops.rms_norm_backward, (x, x, gamma, stat[:3]), "rstd has 3 numbers"),
             (ops.layer_norm_backward, (x, x, gamma, stat.half(), stat), "mean is float16")]
    for fn, args, words in wrong:
        with pytest.raises((TypeError, ValueError), match=f"^{words}") as caught:
            fn(*args)
        assert "\n" not in str(caught.value)

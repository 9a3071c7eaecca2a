"""What the batteries cannot see in lesson 06's operators: the algebra of states, targets, who runs which kernel."""

import itertools
import math

import numpy as np
import pytest
import torch

import utils  # noqa: F401  (decides GPU or interpreter before triton is imported)
from utils import device
from utils.ops import softmax as ops

INF = math.inf


def state(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(max, sum of exp(x − max)) of each row, from the definition; (−inf, 0) for a row of −inf only."""
    m = x.amax(1) if x.shape[1] else torch.full((len(x),), -INF, dtype=x.dtype)
    return m, torch.exp(x - m.where(m > -INF, torch.zeros_like(m))[:, None]).sum(1)


def scores(rows: int = 64, cols: int = 60, seed: int = 0) -> torch.Tensor:
    """Random scores in float64 with −inf strewn in; row 0 is −inf only, row 1 begins with it, row 2 ends with it."""
    g = torch.Generator().manual_seed(seed)
    x = 30 * torch.randn(rows, cols, dtype=torch.float64, generator=g)
    x[torch.rand(rows, cols, generator=g) < 0.3] = -INF
    x[0], x[1, : cols // 2], x[2, cols // 2:] = -INF, -INF, -INF
    return x


def close(a, b) -> bool:
    return all(torch.allclose(p, q, rtol=1e-12, atol=0) for p, q in zip(a, b))


# --- merge_states ---------------------------------------------------------------------------------

@pytest.mark.parametrize("cuts", [(20, 40), (1, 2), (0, 30), (59, 59), (0, 60)], ids=str)
def test_merging_the_states_of_three_pieces_is_associative_and_gives_the_whole_row(cuts):
    x = scores()
    a, b, c = (state(x[:, i:j]) for i, j in itertools.pairwise((0, *cuts, 60)))
    left = ops.merge_states(*ops.merge_states(*a, *b), *c)
    right = ops.merge_states(*a, *ops.merge_states(*b, *c))
    assert close(left, right) and close(left, state(x))


def test_merging_is_commutative():
    x = scores(seed=1)
    a, b = state(x[:, :17]), state(x[:, 17:])
    assert close(ops.merge_states(*a, *b), ops.merge_states(*b, *a))


def test_the_empty_state_is_neutral_and_two_of_them_stay_empty():
    empty = (torch.tensor(-INF, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64))
    a = state(scores(seed=2))
    assert close(ops.merge_states(*a, *empty), a) and close(ops.merge_states(*empty, *a), a)
    m, d = ops.merge_states(*empty, *empty)
    assert m == -INF and d == 0


@pytest.mark.parametrize("order", ["left to right", "right to left", "tree"])
def test_states_of_single_elements_merge_to_logsumexp_in_any_order(order):
    x = scores(16, 32, seed=3)
    parts = [(x[:, j], torch.where(x[:, j] > -INF, 1.0, 0.0).double()) for j in range(32)]
    if order == "tree":
        while len(parts) > 1:
            parts = [ops.merge_states(*a, *b) for a, b in zip(parts[::2], parts[1::2])]
        m, d = parts[0]
    else:
        m, d = torch.full((16,), -INF, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
        for part in parts if order == "left to right" else parts[::-1]:
            m, d = ops.merge_states(m, d, *part)
    assert torch.allclose(m + torch.log(d), torch.logsumexp(x, 1), rtol=1e-12)
    assert not m.isnan().any() and not d.isnan().any()


def test_scores_far_apart_neither_overflow_nor_lose_the_larger():
    m, d = ops.merge_states(torch.tensor(-1e30), torch.tensor(7.0), torch.tensor(1e30), torch.tensor(3.0))
    assert m == 1e30 and d == 3.0


def test_numbers_and_numpy_arrays_are_taken_too():
    m, d = ops.merge_states(0.0, 1.0, 0.0, 2.0)
    assert m == 0 and d == 3
    m, _ = ops.merge_states(np.array([1.0, -INF]), np.ones(2), np.array([2.0, -INF]), np.ones(2))
    assert m.tolist() == [2.0, -INF]


# --- softmax --------------------------------------------------------------------------------------

@pytest.mark.parametrize("fn", [ops.softmax_three_pass, ops.softmax_rows, ops.softmax_online])
def test_a_row_that_begins_with_minus_infinity_is_right_and_one_of_nothing_else_is_zero(fn):
    x = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0))
    x[0, :4997], x[1] = -INF, -INF
    y = fn(x.to(device.DEVICE)).cpu()
    assert torch.allclose(y[[0, 2]], torch.softmax(x[[0, 2]], 1), atol=1e-6)
    assert (y[1] == 0).all()


def test_nan_in_a_row_stays_visible_and_in_its_row():
    x = torch.zeros(2, 40, device=device.DEVICE)
    x[0, 3] = math.nan
    for fn in (ops.softmax_three_pass, ops.softmax_rows, ops.softmax_online):
        y = fn(x)
        assert y[0].isnan().all() and not y[1].isnan().any(), fn.__name__


def test_softmax_chooses_by_the_length_of_the_row(monkeypatch):
    ran = []
    for name in ("softmax_rows", "softmax_online"):
        monkeypatch.setattr(ops, name, lambda x, name=name: ran.append(name))
    for cols in (1, 16384, 16385):
        ops.softmax(torch.empty(1, cols, device=device.DEVICE))
    assert ran == ["softmax_rows", "softmax_rows", "softmax_online"]


def test_a_row_that_does_not_fit_is_refused_with_what_to_use():
    with pytest.raises(ValueError, match="^x has 32769 columns.*softmax_online"):
        ops.softmax_rows(torch.empty(1, 32769, device=device.DEVICE))


@pytest.mark.parametrize("fn", [ops.softmax, ops.softmax_three_pass, ops.softmax_rows, ops.softmax_online])
def test_a_view_with_gaps_or_of_three_dimensions_is_refused(fn):
    with pytest.raises(ValueError, match="^x is not contiguous"):
        fn(torch.zeros(4, 8, device=device.DEVICE)[:, ::2])
    with pytest.raises(ValueError, match="^x has 3 dimensions"):
        fn(torch.zeros(2, 3, 4, device=device.DEVICE))


def test_backward_equals_the_autograd_of_torch():
    x = torch.randn(4, 70, generator=torch.Generator().manual_seed(0), requires_grad=True)
    dy = torch.randn(4, 70, generator=torch.Generator().manual_seed(1))
    y = torch.softmax(x, 1)
    y.backward(dy)
    dx = ops.softmax_backward(y.detach().to(device.DEVICE), dy.to(device.DEVICE)).cpu()
    assert torch.allclose(dx, x.grad, atol=1e-6)


# --- cross-entropy --------------------------------------------------------------------------------

def logits(rows: int = 6, cols: int = 333):
    x = 4 * torch.randn(rows, cols, generator=torch.Generator().manual_seed(0))
    target = torch.randint(cols, (rows,), generator=torch.Generator().manual_seed(1))
    return x.to(device.DEVICE), target.to(device.DEVICE)


@pytest.mark.parametrize("ignore", [-100, 5, 0])
def test_ignored_rows_have_loss_zero_and_gradient_zero_and_others_are_untouched(ignore):
    x, target = logits()
    full, lse = ops.cross_entropy(x, target)
    target[2] = target[4] = ignore
    loss, same = ops.cross_entropy(x, target, ignore_index=ignore)
    again, grad = ops.cross_entropy_grad(x, target, ignore_index=ignore)
    kept = target != ignore
    assert (loss[~kept] == 0).all() and (grad[~kept] == 0).all()
    assert torch.equal(loss[kept], full[kept]) and torch.equal(lse, same)
    assert torch.allclose(again, loss, atol=1e-5)


def test_gradient_equals_autograd_and_each_row_adds_up_to_zero():
    x, target = logits()
    leaf = x.clone().requires_grad_()
    torch.nn.functional.cross_entropy(leaf, target, reduction="sum").backward()
    _, grad = ops.cross_entropy_grad(x, target)
    assert torch.allclose(grad, leaf.grad, atol=1e-6)
    assert grad.sum(1).abs().max() < 1e-5


def test_gradient_equals_a_difference_quotient():
    x, target = logits(2, 11)
    _, grad = ops.cross_entropy_grad(x, target)
    step = 1e-2
    for j in range(11):
        up, down = x.clone(), x.clone()
        up[:, j] += step
        down[:, j] -= step
        slope = (ops.cross_entropy(up, target)[0] - ops.cross_entropy(down, target)[0]) / (2 * step)
        assert torch.allclose(slope, grad[:, j], atol=2e-3), j


@pytest.mark.parametrize("wrong", [333, -1, -101, 2**40])
def test_a_target_outside_of_the_vocabulary_gives_nan_and_reads_nothing(wrong):
    x, target = logits()
    target[1] = wrong
    for loss in (ops.cross_entropy(x, target)[0], ops.cross_entropy_grad(x, target)[0]):
        assert loss[1].isnan() and not loss[[0, 2, 3, 4, 5]].isnan().any()


def test_a_target_of_probability_zero_has_an_infinite_loss():
    x, target = logits()
    x[1, target[1]], x[3] = -INF, -INF
    loss, lse = ops.cross_entropy(x, target)
    assert loss[1] == INF and loss[3] == INF and lse[3] == -INF
    assert loss[[0, 2, 4, 5]].isfinite().all()


@pytest.mark.parametrize("fn", [ops.cross_entropy, ops.cross_entropy_grad])
def test_wrong_arguments_are_named(fn):
    x, target = logits()
    with pytest.raises(TypeError, match="^target is int32"):
        fn(x, target.int())
    with pytest.raises(ValueError, match="^target has shape"):
        fn(x, target[:-1].contiguous())
    with pytest.raises(ValueError, match="^logits has no columns"):
        fn(x[:, :0].contiguous(), target)


# --- linear + cross-entropy -----------------------------------------------------------------------

def linear(M: int = 40, V: int = 96, K: int = 32, dtype: torch.dtype = torch.float16):
    g = torch.Generator().manual_seed(0)
    x, w = (torch.randn(*s, generator=g).to(dtype).to(device.DEVICE) for s in ((M, K), (V, K)))
    return x, w, torch.randint(V, (M,), generator=g).to(device.DEVICE)


def reference(x, w, target):
    z = x.double() @ w.double().T
    return torch.nn.functional.cross_entropy(z, target, reduction="none"), torch.logsumexp(z, 1)


@pytest.fixture
def fallen_back(monkeypatch) -> list:
    """Notes every call of the pointer kernel's wrapper."""
    calls, pointer = [], ops.linear_cross_entropy_tiled
    monkeypatch.setattr(ops, "linear_cross_entropy_tiled", lambda *args: calls.append(args) or pointer(*args))
    return calls


TILE = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}


@pytest.mark.parametrize("why, sizes", [("fp32", {"dtype": torch.float32}), ("rows of 33 elements", {"K": 33}),
                                        ("nothing to do", {"M": 0})])
def test_descriptor_kernel_falls_back_where_a_descriptor_is_impossible(why, sizes, fallen_back):
    args = linear(**sizes)
    got = ops.linear_cross_entropy(*args)
    assert len(fallen_back) == 1
    for actual, wanted in zip(got, reference(*args)):
        assert torch.allclose(actual.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(device.CC not in (0, 90), reason="descriptors are used on sm_90 and in the interpreter")
def test_descriptor_kernel_merges_the_states_of_several_tiles(fallen_back):
    args = linear(M=40, V=100, K=64)
    got = ops.linear_cross_entropy(*args, **TILE)
    assert fallen_back == []
    for actual, wanted in zip(got, reference(*args)):
        assert torch.allclose(actual.double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fn", [ops.linear_cross_entropy, ops.linear_cross_entropy_tiled])
def test_ignored_and_wrong_targets_of_the_fused_loss(fn):
    x, w, target = linear()
    target[3], target[5] = -100, 96
    loss, lse = fn(x, w, target, **TILE)
    assert loss[3] == 0 and loss[5].isnan() and lse.isfinite().all()
    assert loss[[i for i in range(40) if i != 5]].isfinite().all()


def test_sizes_of_the_fused_loss_that_differ_are_named():
    x, w, target = linear()
    with pytest.raises(ValueError, match="both are K"):
        ops.linear_cross_entropy(x, w[:, :16].contiguous(), target)
    with pytest.raises(ValueError, match="^w has no rows"):
        ops.linear_cross_entropy(x, w[:0], target)

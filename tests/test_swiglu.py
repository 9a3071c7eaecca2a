"""What the batteries cannot see in lesson 08's operators: overflow, halves, layouts of the weight, which kernel ran."""

import math

import numpy as np
import pytest
import torch

import utils  # noqa: F401  (decides GPU or interpreter before triton is imported)
from utils import device
from utils.ops import swiglu as ops

F16, F32 = torch.float16, torch.float32
SILU_MUL = [ops.silu_mul_masked, ops.silu_mul]


def rand(*shape: int, dtype: torch.dtype = F32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device.DEVICE)


def row(*values: float, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.tensor([values], dtype=dtype, device=device.DEVICE)


@pytest.fixture(autouse=True)
def wanted_infinities():
    with np.errstate(all="ignore"):  # the interpreter computes with NumPy, which reports each
        yield


# --- the edges of the arithmetic ------------------------------------------------------------------

@pytest.mark.parametrize("fn", SILU_MUL)
def test_every_finite_gate_gives_a_finite_silu(fn):
    gate = row(-3e38, -1e4, -104.0, -88.8, -88.7, 0.0, 88.7, 1e4, 3e38)
    got, want = fn(gate, torch.ones_like(gate)).double(), torch.nn.functional.silu(gate.double())
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("fn", SILU_MUL)
def test_infinite_gates_are_treated_as_torch_treats_them(fn):
    got = fn(row(-math.inf, math.inf, math.nan), row(1.0, 1.0, 1.0))[0].tolist()
    want = torch.nn.functional.silu(torch.tensor([-math.inf, math.inf, math.nan])).tolist()
    assert got[1] == want[1] == math.inf and all(map(math.isnan, (got[0], got[2], want[0], want[2])))


@pytest.mark.parametrize("fn", SILU_MUL)
def test_a_product_too_large_for_fp16_is_infinite_and_one_with_a_closed_gate_is_zero(fn):
    gate, up = row(300, 300, -300, dtype=F16), row(300, -300, 60000, dtype=F16)
    assert fn(gate, up)[0].tolist() == [math.inf, -math.inf, 0]


def test_gradient_of_a_closed_gate_is_zero_even_if_dz_times_up_overflows():
    dgate, dup = ops.silu_mul_backward(row(3e38), row(-200.0), row(3e38))
    assert dgate.item() == 0 and dup.item() == 0


# --- halves and outputs ---------------------------------------------------------------------------

@pytest.mark.parametrize("cols", [1, 16, 17, 1000, 2049])
def test_halves_of_one_tensor_give_the_bits_of_two_tensors(cols):
    y = rand(3, 2 * cols, dtype=F16)
    gate, up = y[:, :cols], y[:, cols:]
    assert torch.equal(ops.silu_mul(gate, up), ops.silu_mul(gate.contiguous(), up.contiguous()))
    dz = rand(3, cols, dtype=F16, seed=1)
    for halves, apart in zip(ops.silu_mul_backward(dz, gate, up),
                             ops.silu_mul_backward(dz, gate.contiguous(), up.contiguous())):
        assert torch.equal(halves, apart)


def test_gradients_are_the_two_halves_of_out():
    dz, gate, up = (rand(4, 10, seed=s) for s in range(3))
    out = torch.full((4, 20), math.nan, device=device.DEVICE)
    dgate, dup = ops.silu_mul_backward(dz, gate, up, out=out)
    assert torch.equal(out, torch.cat([dgate, dup], 1)) and not out.isnan().any()
    assert dgate.data_ptr() == out.data_ptr() and dup.data_ptr() == out[:, 10:].data_ptr()


@pytest.mark.parametrize("bad", [torch.empty(4, 10), torch.empty(4, 20, dtype=F16), torch.empty(20, 4).t()])
def test_a_wrong_out_is_named(bad):
    dz, gate, up = (rand(4, 10, seed=s) for s in range(3))
    with pytest.raises((TypeError, ValueError), match="^out "):
        ops.silu_mul_backward(dz, gate, up, out=bad.to(device.DEVICE))


@pytest.mark.parametrize("config", [{"BLOCK": 64}, {"BLOCK": 2048, "num_warps": 8}], ids=str)
def test_block_size_does_not_change_a_bit(config):
    gate, up = rand(5, 333), rand(5, 333, seed=1)
    assert torch.equal(ops.silu_mul(gate, up), ops.silu_mul(gate, up, **config))


# --- the weight's layout --------------------------------------------------------------------------

def test_interleaving_puts_each_gate_before_its_up():
    w_gate, w_up = rand(6, 5), rand(6, 5, seed=1)
    w = ops.interleave(w_gate, w_up)
    assert w.shape == (6, 10) and w.is_contiguous()
    assert torch.equal(w[:, 0::2], w_gate) and torch.equal(w[:, 1::2], w_up)
    assert torch.equal(ops.interleave(w_gate.t(), w_up.t())[:, 0::2], w_gate.t())


@pytest.mark.parametrize("wrong, named", [((rand(6, 5), rand(6, 4)), "w_up"),
                                          ((rand(6, 5), rand(6, 5, dtype=F16)), "w_up"),
                                          ((rand(6), rand(6)), "w_gate")])
def test_weights_that_do_not_belong_together_are_named(wrong, named):
    with pytest.raises((TypeError, ValueError), match=f"^{named} "):
        ops.interleave(*wrong)


def test_both_layouts_give_the_same_block_and_each_kernel_needs_its_own():
    x, w_gate, w_up = rand(20, 24), rand(24, 40, seed=1), rand(24, 40, seed=2)
    beside, mixed = torch.cat([w_gate, w_up], 1), ops.interleave(w_gate, w_up)
    z = ops.gate_up(x, mixed)
    torch.testing.assert_close(z, ops.gate_up_concatenated(x, beside), rtol=1e-5, atol=1e-4)
    assert not torch.allclose(z, ops.gate_up(x, beside), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("fn", [ops.gate_up, ops.gate_up_persistent, ops.gate_up_concatenated])
def test_an_odd_number_of_columns_is_refused(fn):
    with pytest.raises(ValueError, match="^w has 7 columns, an odd number"):
        fn(rand(4, 8, dtype=F16), rand(8, 7, dtype=F16))


# --- which kernel ran -----------------------------------------------------------------------------

def gap(x: torch.Tensor) -> torch.Tensor:
    """The same matrix with a stride of 2 along its last axis."""
    return torch.stack([x, x], -1).flatten(-2)[..., ::2]


IMPOSSIBLE = {
    "rows of z of 34 elements": lambda: (rand(32, 32, dtype=F16), rand(32, 68, dtype=F16)),
    "a stride along the last axis": lambda: (gap(rand(32, 32, dtype=F16)), rand(32, 64, dtype=F16)),
    "a transposed weight": lambda: (rand(32, 32, dtype=F16), rand(64, 32, dtype=F16).t()),
    "fp32": lambda: (rand(32, 32), rand(32, 64)),
    "nothing to multiply": lambda: (rand(0, 32, dtype=F16), rand(32, 64, dtype=F16)),
}


@pytest.fixture
def fallen_back(monkeypatch) -> list:
    """Notes every call of the pointer kernel's wrapper."""
    calls, pointer = [], ops.gate_up
    monkeypatch.setattr(ops, "gate_up", lambda *args, **kwargs: calls.append(args) or pointer(*args, **kwargs))
    return calls


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_descriptor_kernel_falls_back_where_a_descriptor_is_impossible(why, fallen_back):
    x, w = IMPOSSIBLE[why]()
    got, y = ops.gate_up_persistent(x, w), x.double() @ w.double()
    assert len(fallen_back) == 1
    torch.testing.assert_close(got.double(), ops._silu_mul(y[:, 0::2], y[:, 1::2]), rtol=2e-3, atol=2e-2)


def test_descriptor_kernel_does_not_fall_back_on_aligned_matrices(fallen_back):
    ops.gate_up_persistent(rand(32, 32, dtype=F16), rand(32, 64, dtype=F16), BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    assert fallen_back == []


def test_the_block_uses_the_kernels_it_is_given():
    x, w, w_down = rand(4, 8), rand(8, 12, seed=1), rand(6, 8, seed=2)
    called = []
    y = ops.swiglu_ffn(x, w, w_down, first=lambda a, b: called.append("first") or ops.gate_up(a, b),
                       second=lambda a, b: called.append("second") or a @ b)
    assert called == ["first", "second"]
    torch.testing.assert_close(y, ops._gate_up(x, w) @ w_down, rtol=1e-4, atol=1e-4)


def test_a_down_projection_of_another_width_is_named():
    with pytest.raises(ValueError, match="^w_down has 5 rows"):
        ops.swiglu_ffn(rand(4, 8), rand(8, 12), rand(5, 8))

"""What the batteries cannot see in lesson 04's operators: which kernel ran, and who refuses what."""

import pytest
import torch

import utils  # noqa: F401  (decides GPU or interpreter before triton is imported)
from utils import device
from utils.ops import gemm as ops

N = 64


def operands(*, rows: int = N, inner: int = N, columns: int = N, dtype: torch.dtype = torch.float16):
    """(A[rows, inner], B[inner, columns]) with random values."""
    rand = torch.Generator().manual_seed(0)
    a, b = torch.randn(rows, inner, generator=rand), torch.randn(inner, columns, generator=rand)
    return a.to(dtype).to(device.DEVICE), b.to(dtype).to(device.DEVICE)


def gap(x: torch.Tensor) -> torch.Tensor:
    """The same matrix with a stride of 2 along its last axis."""
    return torch.stack([x, x], -1).flatten(-2)[..., ::2]


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The same matrix at an address that is no multiple of 16 bytes."""
    flat = torch.empty(x.numel() + 1, dtype=x.dtype, device=x.device)
    return flat[1:].view_as(x).copy_(x)


IMPOSSIBLE = {
    "rows of 33 elements": lambda: operands(columns=33),
    "a stride along the last axis": lambda: (gap(operands()[0]), operands()[1]),
    "a transposed B": lambda: (operands()[0], operands()[1].t()),
    "an address off the 16 bytes": lambda: (operands()[0], shifted(operands()[1])),
    "fp32": lambda: operands(dtype=torch.float32),
    "nothing to multiply": lambda: operands(rows=0),
}


@pytest.fixture
def fallen_back(monkeypatch) -> list:
    """Notes every call of the pointer kernel's wrapper."""
    calls, pointer = [], ops.gemm
    monkeypatch.setattr(ops, "gemm", lambda *args, **kwargs: calls.append(args) or pointer(*args, **kwargs))
    return calls


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_descriptor_kernel_falls_back_where_a_descriptor_is_impossible(why, fallen_back):
    a, b = IMPOSSIBLE[why]()
    got = ops.gemm_persistent(a, b)
    assert len(fallen_back) == 1
    torch.testing.assert_close(got.double(), a.double() @ b.double(), rtol=2e-3, atol=2e-2)


def test_descriptor_kernel_does_not_fall_back_on_aligned_matrices(fallen_back):
    a, b = operands()
    ops.gemm_persistent(a, b, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    assert fallen_back == []


def test_a_misaligned_residual_falls_back_too(fallen_back):
    a, b = operands()
    residual = shifted(torch.ones_like(a))
    got = ops.gemm_persistent(a, b, residual=residual)
    assert len(fallen_back) == 1
    torch.testing.assert_close(got.double(), a.double() @ b.double() + 1, rtol=2e-3, atol=2e-2)


def test_specialisation_refuses_an_epilogue_in_one_sentence():
    a, b = operands()
    for epilogue in ({"silu": True}, {"bias": torch.ones_like(b[0])}, {"residual": torch.ones_like(a)}):
        with pytest.raises(ValueError, match="^specialize must be False"):
            ops.gemm_persistent(a, b, specialize=True, **epilogue)


@pytest.mark.parametrize("wrong, named", [({"bias": torch.ones(3, dtype=torch.float16)}, "bias"),
                                          ({"residual": torch.ones(3, 3, dtype=torch.float16)}, "residual"),
                                          ({"bias": torch.ones(N)}, "bias")])
def test_a_wrong_epilogue_argument_is_named(wrong, named):
    a, b = operands()
    for fn in (ops.gemm, ops.gemm_persistent):
        with pytest.raises((TypeError, ValueError), match=f"^{named} "):
            fn(a, b, **{name: x.to(device.DEVICE) for name, x in wrong.items()})


def test_inner_sizes_that_differ_are_named():
    with pytest.raises(ValueError, match="both are K"):
        ops.gemm(torch.ones(3, 4, device=device.DEVICE), torch.ones(5, 3, device=device.DEVICE))

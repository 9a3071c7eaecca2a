"""What the battery cannot see in lesson 03's operators: tiles of every shape agree, and bad arguments are named."""

import pytest
import torch

import utils  # noqa: F401  (decides GPU or interpreter before triton is imported)
from utils import check, device

pytest.importorskip("triton")

from utils.ops import profiling as ops  # noqa: E402


def operands(rows: int = 7, cols: int = 1100, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    rand = torch.Generator().manual_seed(0)
    return [torch.randn(*size, generator=rand).to(dtype).to(device.DEVICE) for size in ((rows, cols), (cols,), (cols,))]


@pytest.mark.parametrize("config", ops.SWEEP, ids=str)
def test_every_tile_of_the_sweep_gives_the_same_result(config):
    args = operands()
    expected = ops._chain(*(a.double() for a in args))
    check.agree(check.call(ops.gelu_chain, args, config.kwargs), expected)


def test_the_first_configuration_of_the_sweep_is_the_default():
    import inspect

    defaults = {name: p.default for name, p in inspect.signature(ops.gelu_chain).parameters.items()}
    assert all(defaults[name] == value for name, value in ops.SWEEP[0].kwargs.items())


@pytest.mark.parametrize("wrapper", [ops.gelu_chain, ops.gelu_chain_row])
@pytest.mark.parametrize("change, words", [
    (lambda x, b, g: (x, b[:-1], g), "bias has shape"), (lambda x, b, g: (x, b, g[None]), "gamma has shape"),
    (lambda x, b, g: (x[0], b, g), "x has 1 dimensions"), (lambda x, b, g: (x, b.half(), g), "bias is float16"),
    (lambda x, b, g: (x.t(), x[:, 0].contiguous(), x[:, 1].contiguous()), "x is not contiguous")])
def test_a_wrong_argument_is_named(wrapper, change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        wrapper(*change(*operands()))


def test_an_empty_kernel_changes_nothing_and_needs_a_program():
    x = torch.arange(3.0, device=device.DEVICE)
    assert ops.nothing(x, programs=5) is x and x.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="programs is 0"):
        ops.nothing(x, programs=0)

"""What the batteries cannot see in lesson 02's operators: who refuses what, large offsets, ids outside the table."""

import pytest
import torch

import utils  # noqa: F401  (decides GPU or interpreter before triton is imported)
from utils import device
from utils.ops import memory_layout as ops

X = torch.arange(6.0, device=device.DEVICE).view(2, 3)
HEADS = torch.zeros(2, 3, 4, 5, device=device.DEVICE)
IDS = torch.tensor([1, 0], device=device.DEVICE)


@pytest.mark.parametrize("fn, args, named", [
    (ops.transpose, (X.t(),), "x"), (ops.transpose_rows, (X.t(),), "x"), (ops.transpose_swapped, (X.t(),), "x"),
    (ops.sum_rows, (X.t(),), "x"), (ops.sum_atomic, (X.t(),), "x"), (ops.strided_copy, (X.view(-1)[::2], 3), "x"),
    (ops.permute_heads, (HEADS.transpose(1, 2),), "x"), (ops.embedding, (X.t(), IDS), "weight"),
    (ops.embedding, (X, torch.arange(4, device=device.DEVICE)[::2]), "ids")],
    ids=lambda v: getattr(v, "__name__", None))
def test_a_view_with_strides_is_refused_in_one_sentence(fn, args, named):
    with pytest.raises(ValueError, match=rf"^{named} is not contiguous.*pass {named}\.contiguous\(\)\.$"):
        fn(*args)


@pytest.mark.parametrize("fn, args, named", [
    (ops.transpose, (X.view(-1),), "x"), (ops.transpose, (HEADS,), "x"), (ops.transpose_rows, (HEADS,), "x"),
    (ops.sum_rows, (HEADS,), "x"), (ops.strided_copy, (X, 2), "x"), (ops.strided_copy, (X.view(-1), 0), "stride"),
    (ops.strided_copy, (X.view(-1), 2.0), "stride"), (ops.permute_heads, (X,), "x"), (ops.embedding, (HEADS, IDS), "weight"),
    (ops.embedding, (X, IDS.float()), "ids"), (ops.embedding, (X, [0, 1]), "ids")],
    ids=lambda v: getattr(v, "__name__", None))
def test_a_wrong_argument_is_named(fn, args, named):
    with pytest.raises((TypeError, ValueError), match=f"^{named} "):
        fn(*args)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_an_id_outside_the_table_gives_a_row_of_nan_and_no_other(dtype):
    ids = torch.tensor([[0, 2], [-1, 1], [2**31 - 1, -(2**31)]], device=device.DEVICE).to(dtype)
    y = ops.embedding(X, ids)
    assert y.shape == (3, 2, 3)
    assert y[0, 0].equal(X[0]) and y[1, 1].equal(X[1])
    assert all(y[at].isnan().all() for at in ((0, 1), (1, 0), (2, 0), (2, 1)))


def test_ids_of_any_shape_and_an_empty_table():
    assert ops.embedding(X, torch.tensor(1, device=device.DEVICE)).equal(X[1])
    assert ops.embedding(X, IDS[:0]).shape == (0, 3)
    assert ops.embedding(X[:0], IDS).isnan().all()


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("tile", [(16, 64), (64, 16)])
def test_transposes_in_both_program_orders_with_tiles_that_are_not_square(down, tile):
    x = torch.randn(3, 70, 130, generator=torch.Generator().manual_seed(0)).to(device.DEVICE)
    y = ops.transpose(x, BLOCK_R=tile[0], BLOCK_C=tile[1], DOWN=down)
    assert y.is_contiguous() and y.equal(x.transpose(1, 2).contiguous())


def test_twice_transposed_and_twice_permuted_is_what_it_was():
    x = torch.randn(2, 33, 5, 40, generator=torch.Generator().manual_seed(0)).to(device.DEVICE)
    assert ops.permute_heads(ops.permute_heads(x)).equal(x)
    flat = x.view(2, 33, 200)
    assert ops.transpose(ops.transpose(flat)).equal(flat)


def test_channels_last_and_back():
    x = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0)).to(device.DEVICE)
    last = ops.transpose(x.flatten(2)).view(2, 5, 7, 3)
    assert last.equal(x.permute(0, 2, 3, 1).contiguous())
    assert ops.transpose(last.flatten(1, 2)).view_as(x).equal(x)


def test_offsets_beyond_int32_are_reached():
    rows, cols, row = 2**19 + 16, 4096, 2**19 + 8  # row · cols is beyond 2³¹
    if not device.ON_GPU or device.free_bytes() < 3 * rows * cols:
        pytest.skip("needs a GPU with room for a table of 4 GiB")
    weight = torch.zeros(rows, cols, device=device.DEVICE, dtype=torch.float16)
    weight[row] = 1.0
    y = ops.embedding(weight, torch.tensor([row, 0], device=device.DEVICE))
    assert y.float().sum(1).tolist() == [cols, 0.0]

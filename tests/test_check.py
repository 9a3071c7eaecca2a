"""The judge itself: what it must refuse, what it must let pass, and whether its sentence points at the cause."""

import dataclasses
import importlib
import inspect
import math
import pkgutil

import numpy as np
import pytest
import torch

import utils.ops
from utils import check, device
from utils.ops.base import Config, Operator, check_tensor

device.need_triton()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
M, N, K = 70, 100, 300  # tails everywhere


def rand(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=F64)


def said(actual, reference, **how) -> str:
    """The sentence with which `agree` refuses a result."""
    with pytest.raises(AssertionError) as caught:
        check.agree(actual, reference, **how)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 400
    return text


# --- agree: mistakes, and the cause that is named ------------------------------------------------

def test_dropped_tail_columns_are_called_a_tail():
    want = rand(M, N)
    got = want.float()
    got[:, 96:] = 0
    text = said(got, want)
    assert "tail of the last axis" in text and f"{M * 4} of {M * N} elements" in text
    assert "rows 0–31, columns 96–99 (element [0, 96])" in text


def test_a_missing_rescale_of_each_row_is_called_one_factor_a_row():
    want = torch.softmax(rand(M, N), -1)
    assert "each row is off by one factor" in said((want * (1.5 + rand(M, 1).abs())).float(), want)


def test_a_transposed_result_is_called_transposed():
    want = rand(N, N)
    assert "transposed" in said(want.T.contiguous().float(), want)


def test_permuted_values_are_called_misplaced():
    want = rand(M, N)
    shuffled = want.flatten()[torch.randperm(M * N, generator=torch.Generator().manual_seed(1))].view(M, N)
    assert "wrong place" in said(shuffled.float(), want)
    assert "wrong place" in said(want.roll(1, 1).float(), want), "an offset that is one too large"


@pytest.mark.parametrize("where, cause", [
    ((slice(None), slice(None)), "no element was written"), ((3, 7), "were not written"),
    ((slice(None), slice(96, None)), "(the tail) were not written"), ((slice(10, 20),), "were not written")])
def test_elements_that_stayed_nan_are_called_unwritten(where, cause):
    got = rand(M, N).float()
    got[where] = math.nan
    assert cause in said(got, rand(M, N)) and "none of the wrong elements is a finite number" in said(got, rand(M, N))


def test_sums_in_fp16_are_called_nearly_right():
    a, b, acc = rand(M, K).half(), rand(K, N, seed=1).half(), torch.zeros(M, N, dtype=F16)
    for k in range(K):
        acc = acc + a[:, k:k + 1] * b[k]
    assert "is the accumulator fp32" in said(acc, a.double() @ b.double(), depth=K)


def test_inputs_rounded_on_the_way_are_called_nearly_right():
    a, b = rand(M, K), rand(K, N, seed=1)
    coarse = a.bfloat16().double() @ b.bfloat16().double()  # what TF32 does, somewhat stronger
    assert "nearly right everywhere" in said(coarse.float(), a @ b, depth=K)


def test_an_overflow_is_called_an_overflow():
    want = rand(M, N) * 10
    assert "overflow" in said((want * 1e38).float() / 1e38, want + 0)


def test_a_wrong_shape_and_a_wrong_type_are_named():
    want = rand(M, N)
    assert said(want.T, want, name="y") == f"y has shape [{N}, {M}], expected [{M}, {N}]."
    assert "shape" in said(want[0], want), "broadcasting does not hide a missing axis"
    assert "list" in said(want.tolist(), want) and "tuple" in said((want,), want)


def test_one_wrong_element_among_many_is_found():
    for place in ((0, 0), (M - 1, N - 1), (33, 64)):
        got = rand(M, N).float()
        got[place] += 0.01
        text = said(got, rand(M, N))
        assert f"1 of {M * N} elements" in text and f"(element {list(place)})" in text


def test_the_largest_error_is_told_in_units_of_the_tolerance():
    want = torch.ones(8, dtype=F64)
    rtol, atol = check.tolerance(F32, want)
    got = torch.ones(8, dtype=F64)
    got[5] += 1000 * (rtol + atol)
    assert "the largest error is 1e+03 times the tolerance" in said(got.float(), want)


# --- agree: what is right ------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_a_product_summed_in_fp32_and_rounded_once_agrees(dtype, scale):
    a, b = (rand(M, K) * scale).to(dtype), rand(K, N, seed=1).to(dtype)
    check.agree((a.float() @ b.float()).to(dtype), a.double() @ b.double(), depth=K)


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_the_rounded_reference_agrees_over_the_whole_range(dtype):
    want = torch.cat([rand(500) * 10.0**e for e in range(-12, 13)])
    check.agree(want.to(dtype), want)  # subnormals, and fp16's infinities, too


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_two_units_in_the_last_place_do_not_agree(dtype):
    want = (1 + rand(64).abs()).to(dtype)
    said(want * (1 + 3 * torch.finfo(dtype).eps), want.double())


def test_nothing_agrees_with_nothing():
    check.agree(torch.empty(0, 5), torch.empty(0, 5, dtype=F64))
    said(torch.empty(5, 0), torch.empty(0, 5, dtype=F64))


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_nan_agrees_with_nan_and_with_no_number(dtype):
    for number in (0.0, 1.0, -math.inf, math.inf, 65504.0):
        want = torch.tensor([1.0, number, 2.0], dtype=F64)
        got = want.clone()
        got[1] = math.nan
        said(got.to(dtype), want)
        said(want.to(dtype), got)
        said(got.to(dtype), want, depth=10**12, scale=1e6, inner=torch.float8_e5m2)
    check.agree(torch.tensor([math.nan, 1.0]).to(dtype), torch.tensor([math.nan, 1.0], dtype=F64))


def test_infinities_agree_by_sign_only():
    inf = torch.tensor([math.inf, -math.inf, 1.0], dtype=F64)
    check.agree(inf.float(), inf)
    said(-inf.float(), inf), said(torch.tensor([3e38, -math.inf, 1.0]), inf)
    check.agree(torch.tensor([math.inf], dtype=F16), torch.tensor([1e6], dtype=F64))
    said(torch.tensor([math.inf], dtype=F16), torch.tensor([1e4], dtype=F64))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.bool], ids=str)
def test_integers_are_exact(dtype):
    want = (rand(M, N).abs() * 40).clamp(max=100).to(dtype)
    check.agree(want, want.double())
    off = want.clone()
    off[5, 7] = not off[5, 7] if dtype == torch.bool else off[5, 7] + 1
    assert f"1 of {M * N} elements" in said(off, want.double(), depth=10**6)


# --- Guard and call: what a kernel did to memory -------------------------------------------------

@triton.jit
def shifted_copy_kernel(x_ptr, y_ptr, n, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs + SHIFT, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def unmasked_copy_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs))


def shifted(shift: int):
    def copy(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        shifted_copy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), SHIFT=shift, BLOCK=64)
        return y
    return copy


def unmasked(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    unmasked_copy_kernel[(triton.cdiv(x.numel(), 64),)](x, y, BLOCK=64)
    return y


def numbers(n: int, dtype: torch.dtype) -> torch.Tensor:
    return (10 * rand(n)).to(dtype).to(device.DEVICE)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, torch.int32, torch.int8], ids=str)
def test_a_write_past_the_end_shows_even_if_it_copies_the_bands_own_pattern(dtype):
    check.call(unmasked, (numbers(128, dtype),))
    with pytest.raises(AssertionError, match="28 elements past the end.*needs a mask"):
        check.call(unmasked, (numbers(100, dtype),))


def test_a_write_before_the_start_shows():
    check.call(shifted(0), (numbers(100, F32),))
    with pytest.raises(AssertionError, match="1 elements before the start"):
        check.call(shifted(-1), (numbers(100, F32),))


def test_a_write_into_an_inputs_band_shows():
    def scribble(x):
        shifted_copy_kernel[(1,)](x, x, 4, SHIFT=x.numel(), BLOCK=64)
        return torch.zeros(4)

    with pytest.raises(AssertionError, match="argument 0: 4 elements past the end"):
        check.call(scribble, (numbers(100, F32),))


def test_a_changed_input_shows_unless_it_may_be_changed():
    def double(x, y):
        return y.mul_(2)

    x, y = numbers(50, F32), numbers(50, F32)
    with pytest.raises(AssertionError, match="argument 1 was changed"):
        check.call(double, (x, y))
    assert torch.equal(check.call(double, (x, y), inplace=True), 2 * y)
    assert torch.equal(y, numbers(50, F32)), "the caller's tensor is never touched"


def test_an_input_that_turned_from_one_nan_into_another_was_changed():
    with pytest.raises(AssertionError, match="argument 0 was changed"):
        check.call(lambda x: x.neg_(), (torch.full((4,), math.nan),))


def test_an_unwritten_output_stays_nan():
    y = check.call(lambda x: torch.empty_like(x), (numbers(50, F16),))
    assert y.isnan().all() and y.shape == (50,)


def test_an_element_that_a_kernel_left_out_stays_nan():
    def all_but_the_last(x):
        y = torch.empty_like(x)
        shifted_copy_kernel[(2,)](x, y, x.numel() - 1, SHIFT=0, BLOCK=64)
        return y

    x = numbers(100, F32)
    assert "(the tail) were not written" in said(check.call(all_but_the_last, (x,)), x.double())


@pytest.mark.parametrize("make", [lambda x: torch.empty(3, 5), lambda x: torch.empty_like(x), lambda x: x.new_empty(7),
                                  lambda x: torch.empty_strided((3, 5), (10, 2))])
def test_every_way_to_ask_for_an_empty_tensor_is_guarded(make):
    with check.Guard() as guard:
        y = make(numbers(6, F32))
    assert y.isnan().all() and len(guard.buffers) == 1
    guard.verify()
    y.as_strided((1,), (1,), y.storage_offset() - 1).zero_()
    with pytest.raises(AssertionError, match="before the start"):
        guard.verify()


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.T, lambda x: x[:, ::2], lambda x: x[1:], lambda x: x[0],
                                  lambda x: x.view(2, 5, 8).permute(2, 0, 1), lambda x: x[:0], lambda x: x[0, 0],
                                  lambda x: x[:1].expand(4, 8), lambda x: x[:, :1].expand(10, 3)])
def test_guarded_keeps_values_and_strides(view):
    x = view(numbers(80, F16).view(10, 8))
    copy = check.guarded(x)
    assert copy.stride() == x.stride() and copy.shape == x.shape and torch.equal(copy, x)
    assert copy.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    band = copy._base[:check.BAND]
    assert band.isnan().all() and copy._base[-check.BAND:].isnan().all() and copy.storage_offset() == check.BAND


def test_call_passes_keywords_and_what_is_no_tensor_through():
    assert check.call(lambda x, k, scale=1: x.sum() * k * scale, (torch.ones(3), 2), {"scale": 5}).item() == 30


# --- Watch: what only the interpreter sees -------------------------------------------------------

@triton.jit
def masked_store_only_kernel(x_ptr, y_ptr, n, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs + SHIFT)
    tl.store(y_ptr + offs, x, mask=offs < n)


@triton.jit
def count_kernel(ids_ptr, count_ptr, n, ATOMIC: tl.constexpr, MASK: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + offs, mask=offs < n, other=0)
    if ATOMIC:
        tl.atomic_add(count_ptr + ids, 1.0, mask=(offs < n) & ((ids < 8) | (MASK == 0)))
    else:
        tl.store(count_ptr + ids, tl.load(count_ptr + ids) + 1.0, mask=offs < n)


def reads(shift: int):
    def copy(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        masked_store_only_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), SHIFT=shift, BLOCK=64)
        return y
    return copy


def counted(ids: torch.Tensor, ATOMIC: int = 1, MASK: int = 1, BLOCK: int = 1, times: int = 1) -> torch.Tensor:
    count = torch.empty(8, device=ids.device).zero_()
    for _ in range(times):
        count_kernel[(triton.cdiv(ids.numel(), BLOCK),)](ids, count, ids.numel(), ATOMIC, MASK, BLOCK=BLOCK)
    return count


interpreted = pytest.mark.skipif(not device.INTERPRET, reason="a GPU does not tell")


@interpreted
def test_a_read_outside_of_a_buffer_shows_even_if_nothing_of_it_is_stored():
    check.call(reads(0), (numbers(128, F32),))
    with pytest.raises(AssertionError, match="28 elements past the end of argument 0 were read: the load needs a mask"):
        check.call(reads(0), (numbers(100, F32),))
    with pytest.raises(AssertionError, match="3 elements before the start of argument 0 were read"):
        check.call(reads(-3), (numbers(128, F32),))


@interpreted
def test_an_atomic_outside_of_a_buffer_shows():
    ids = torch.tensor([1, 9, 1, 3], device=device.DEVICE)
    assert check.call(counted, (ids,)).tolist() == [0, 2, 0, 1, 0, 0, 0, 0]
    with pytest.raises(AssertionError, match="1 elements past the end of an output were (read|written)"):
        check.call(counted, (ids,), {"MASK": 0})


@interpreted
def test_two_programs_that_store_to_one_place_show():
    ids = torch.tensor([1, 5, 1, 3], device=device.DEVICE)
    with pytest.raises(AssertionError, match="1 elements were stored by more than one program.*use an atomic"):
        check.call(counted, (ids,), {"ATOMIC": 0})
    apart = torch.tensor([1, 5, 2, 3], device=device.DEVICE)
    assert check.call(counted, (apart,), {"ATOMIC": 0, "times": 2}).tolist() == [0, 2, 2, 2, 0, 2, 0, 0], \
        "a second launch may store to the places of the first"


@triton.jit
def row_max_kernel(x_ptr, y_ptr, cols, TWICE: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    top = tl.max(tl.load(x_ptr + row * cols + col, mask=col < cols, other=-float("inf")))
    if TWICE:
        top = tl.max(tl.load(x_ptr + row * cols + col, mask=col < cols, other=top))
    tl.store(y_ptr + row, top)


@interpreted
def test_loads_of_the_first_argument_are_counted():
    def row_max(x, TWICE=0):
        y = torch.empty(x.shape[0], device=x.device)
        row_max_kernel[(x.shape[0],)](x, y, x.shape[1], TWICE, BLOCK=64)
        return y

    x = numbers(150, F32).view(3, 50)
    assert check.call(row_max, (x,), reads=1.0).equal(x.amax(1))
    with pytest.raises(AssertionError, match="each element of argument 0 was loaded 2 times, 1.2 are enough"):
        check.call(row_max, (x,), {"TWICE": 1}, reads=1.2)


def test_a_changed_numpy_argument_shows():
    x = np.array([1.0, np.nan])
    with pytest.raises(AssertionError, match="argument 0 was changed"):
        check.call(lambda x: x.fill(2), (x,))
    assert x[0] == 1 and check.call(lambda x: x[0] + 1, (x,)) == 2


@interpreted
def test_the_interpreter_is_left_as_it_was():
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    before = dict(vars(Builder))
    with pytest.raises(ZeroDivisionError):
        check.call(lambda x: 1 / 0, (numbers(4, F32),))
    assert dict(vars(Builder)) == before


# --- the battery ---------------------------------------------------------------------------------

def doubled(x: torch.Tensor, SHIFT: int = 0) -> torch.Tensor:
    check_tensor("x", x, contiguous=False)
    return x * 2


DOUBLE = Operator("double", doubled, lambda x: 2 * x, lambda shape, dtype, rand: (rand(*shape),), [(1,), (17,), (3, 5)],
                  (16,), configs=(Config({}), Config({"SHIFT": 1})), edges=("zeros", "large", "-inf"), strided=True)


def test_the_battery_is_shapes_times_configs_plus_edges_plus_views():
    cases = list(check.battery(DOUBLE, (F16, F32)))
    assert len(cases) == 2 * (3 * 2 + 3 + 1)
    assert check.run_battery(DOUBLE, (F16, F32)) == "all 20 cases agree"
    assert check.run_battery([DOUBLE, DOUBLE], (F32,)) == "all 20 cases agree"
    assert len({case.label for case in cases}) == len(cases), "a failing case is named without doubt"


def test_the_battery_fills_and_strides_as_its_labels_say():
    cases = {case.label: case.args[0] for case in check.battery(DOUBLE, (F16,))}
    fill = lambda word: next(x for label, x in cases.items() if word in label)
    assert fill("zeros").count_nonzero() == 0
    assert 1e3 < fill("large").abs().max() < math.inf
    assert (fill("-inf") == -math.inf).any() and (fill("-inf")[1] == -math.inf).all(), "one row is nothing but −inf"
    assert fill("strided").stride() == (10, 2) and fill("strided").shape == (3, 5)
    assert not any("strided" in c.label for c in check.battery(dataclasses.replace(DOUBLE, strided=False), (F16,)))


def test_another_seed_gives_other_numbers_and_the_same_seed_the_same():
    first = lambda seed: next(iter(check.battery(DOUBLE, (F32,), seed))).args[0]
    assert torch.equal(first(3), first(3)) and not torch.equal(first(3), first(4))


@pytest.mark.skipif(device.ON_GPU, reason="a GPU runs bf16")
def test_bf16_is_skipped_with_the_reason_on_a_cpu():
    cases = list(check.battery(DOUBLE, (BF16,)))
    assert len(cases) == 9 and all(case.skip for case in cases)
    assert check.run_battery(DOUBLE) == "all 20 cases agree; 9 skipped: the interpreter computes bf16 wrongly"


def test_a_battery_without_cases_is_no_success():
    with pytest.raises(ValueError, match="nothing was checked"):
        check.run_battery([])


def drops_tail(x, SHIFT=0):
    y = x * 2
    y[..., 16:] = 0
    return y


WRONG = {
    "double float16 17 random (defaults)": drops_tail,
    "double float16 3×5 strided": lambda x, SHIFT=0: 2 * (x.as_strided(x.shape, (5, 1)) if x.ndim == 2 else x),
    "double float16 1 random (SHIFT=1)": lambda x, SHIFT=0: 2 * x + SHIFT,
    "double float16 3×5 -inf (defaults)": lambda x, SHIFT=0: (2 * x).nan_to_num(),
    "double float16 3×5 large (defaults)": lambda x, SHIFT=0: (2 * x).clamp(max=1000.0),
    "double float16 1 random (defaults)": lambda x, SHIFT=0: (2 * x, x),
}


@pytest.mark.parametrize("label", WRONG)
def test_a_planted_mistake_fails_the_case_that_shows_it(label):
    with pytest.raises(AssertionError) as caught:
        check.run_battery(dataclasses.replace(DOUBLE, fn=WRONG[label]), (F16,))
    assert str(caught.value).startswith(label.replace(" 3×5 strided", " strided"))


def test_a_missing_result_of_several_is_noticed():
    pair = dataclasses.replace(DOUBLE, reference=lambda x: (2 * x, x), fn=lambda x, SHIFT=0: (x * 2,))
    with pytest.raises(AssertionError, match="double float16"):
        check.run_battery(pair, (F16,))
    with pytest.raises(AssertionError, match="double float16"):
        check.run_battery(dataclasses.replace(pair, fn=lambda x, SHIFT=0: x * 2), (F16,))


# --- the course's operators ----------------------------------------------------------------------

MODULES = [importlib.import_module(f"utils.ops.{info.name}") for info in pkgutil.iter_modules(utils.ops.__path__)]
MODULES = [module for module in MODULES if hasattr(module, "CASES")]
OPERATORS = [pytest.param(op, id=f"{m.__name__.rsplit('.', 1)[1]}-{op.name}") for m in MODULES for op in m.CASES]


def test_there_are_operators_and_no_two_of_a_module_share_a_name():
    assert MODULES and all(len({op.name for op in m.CASES}) == len(m.CASES) for m in MODULES)


def usable(op: Operator) -> list[torch.dtype]:
    return [d for d in (F16, F32) if d in op.dtypes] or [op.dtypes[0]]


@pytest.mark.parametrize("op", OPERATORS)
def test_an_exported_operator_passes_its_battery(op):
    text = check.run_battery(op, usable(op))
    assert text.startswith("all ") and "skipped" not in text and not text.startswith("all 0 ")


@pytest.mark.parametrize("op", OPERATORS)
def test_a_battery_holds_tails_and_more_than_one_size(op):
    every = (other for param in OPERATORS for other in param.values)       # a function may have several entries
    shapes = [shape for other in every if other.fn is op.fn for shape in other.shapes]
    assert any(n % 64 for shape in shapes for n in shape if n > 64), "a size that blocks do not divide"
    sizes = [math.prod(shape) for shape in shapes]
    assert min(n for n in sizes if n) < max(sizes)


def small_arguments(op: Operator) -> list:
    shape = min((s for s in op.shapes if math.prod(s) > 1), key=math.prod)
    return list(op.make(shape, usable(op)[0], check._rand(usable(op)[0], 0, "random")))


def tensors_of(op: Operator) -> list[tuple[int, str]]:
    """(position, name) of the tensor arguments."""
    names = list(inspect.signature(op.fn).parameters)
    return [(i, names[i]) for i, a in enumerate(small_arguments(op)) if isinstance(a, torch.Tensor)]


def refusal(op: Operator, position: int, bad) -> str:
    args = small_arguments(op)
    args[position] = bad(args[position])
    with pytest.raises((ValueError, TypeError)) as caught:
        op.fn(*args, **op.configs[0].kwargs)
    return str(caught.value)


def assert_names(text: str, name: str) -> None:
    assert text.startswith(f"{name} ") and text.endswith(".") and "\n" not in text and len(text) < 200, text


@pytest.mark.parametrize("op", OPERATORS)
def test_a_strided_view_is_refused_by_name_or_computed_right(op):
    refused = 0
    for position, name in tensors_of(op):
        args = small_arguments(op)
        args[position] = check._strided(args[position])
        try:
            check.Case(f"{op.name} with a strided {name}", op, tuple(args), op.configs[0]).run()
        except (ValueError, TypeError) as error:
            refused += 1
            assert_names(str(error), name)
    assert not (op.strided and refused), "the table of cases says that views are supported"


@pytest.mark.parametrize("op", OPERATORS)
def test_a_wrong_dtype_is_refused_by_name(op):
    for position, name in tensors_of(op):
        assert_names(refusal(op, position, lambda x: x.to(torch.complex64)), name)
        assert_names(refusal(op, position, lambda x: x.tolist()), name)
        if F64 not in op.dtypes:
            assert_names(refusal(op, position, lambda x: x.double()), name)


SHAPES = {"one axis more": lambda x: x[None], "one element more": lambda x: torch.cat([x, x[..., :1]], -1),
          "one element less": lambda x: x[..., :-1].contiguous(), "twice as many rows": lambda x: torch.cat([x, x], 0),
          "one axis less": lambda x: x.flatten(0, 1) if x.ndim > 1 else x.sum()}


def has_meaning(op: Operator, args: list) -> bool:
    """Whether the reference can be computed on these arguments."""
    try:
        op.reference(*(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args))
        return True
    except (RuntimeError, ValueError, TypeError, IndexError):
        return False


@pytest.mark.parametrize("op", OPERATORS)
def test_a_wrong_shape_is_refused_by_name_or_computed_right(op):
    refused, names = 0, [name for _, name in tensors_of(op)]
    for position, _ in tensors_of(op):
        for what, change in SHAPES.items():
            args = small_arguments(op)
            args[position] = change(args[position])
            label = f"{op.name} with {what} in {names[position] if position < len(names) else position}"
            try:
                if has_meaning(op, args):
                    check.Case(label, op, tuple(args), op.configs[0]).run()
                else:
                    check.call(op.fn, args, op.configs[0].kwargs, label)
                    pytest.fail(f"{label} was not refused")
            except (ValueError, TypeError) as error:
                refused += 1
                assert any(str(error).startswith(f"{name} ") for name in names), f"{label}: {error}"
                assert_names(str(error), str(error).split()[0])
    assert refused or len(names) == 1, "shapes that do not belong together are refused"

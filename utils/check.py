"""Comparison with a reference, batteries of edge cases, and failures that say what to look at.

Outputs are poisoned with NaN before each run and every buffer lies between bands of NaN, so an element
that was not written, a write past the end and a result computed from what lies past the end all show.
In the interpreter `watch` adds every other read past the end, and races of two programs.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from utils import device
from utils.ops.base import Config, Operator
from utils.watch import Watch, watching

BAND = 4096  # guard elements on each side of a buffer
PIECE = 2**24  # elements compared at a time, so that large results need little memory beside them
TILE = 32  # granularity in which the first wrong place is named

# One unit in the last place of the output, with room for the functions a GPU computes approximately.
_RTOL = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 2**-18, torch.float64: 2**-40,
         torch.float8_e4m3fn: 2**-3, torch.float8_e5m2: 2**-2}
_TINY = {torch.float16: 2**-24, torch.bfloat16: 2**-126, torch.float32: 2**-126, torch.float64: 0.0,
         torch.float8_e4m3fn: 2**-9, torch.float8_e5m2: 2**-16}


# --- comparison ------------------------------------------------------------------------------

def tolerance(dtype: torch.dtype, reference: torch.Tensor, depth: int = 1,
              scale: float | None = None, inner: torch.dtype | None = None) -> tuple[float, float]:
    """(rtol, atol) for a result of `dtype` that was summed in fp32 from `depth` terms.

    rtol is one unit in the last place of the output, plus fp32's rounding times the square root of
    the depth (errors of a long chain add up like a random walk). atol is four times the latter in
    units of the reference's own spread: the root mean square of its finite values, or `scale`.
    `inner` is a dtype to which intermediate results are rounded (attention's P).
    """
    if dtype not in _RTOL:
        return 0.0, 0.0  # integers are exact
    spread = scale
    if spread is None:
        squares, count = 0.0, 0
        for (piece,) in _pieces(reference):
            held = _held(piece, dtype)
            finite = held[held.isfinite()]
            squares, count = squares + finite.square().sum().item(), count + finite.numel()
        spread = math.sqrt(squares / count) if count else 0.0
    walk = 2**-23 * math.sqrt(max(depth, 1))
    atol = 4 * walk * spread + _TINY[dtype]
    if inner is not None:
        atol += 2 * _RTOL[inner] * spread
    return _RTOL[dtype] + walk, atol


def agree(actual: torch.Tensor, reference: torch.Tensor, *, depth: int = 1, scale: float | None = None,
          inner: torch.dtype | None = None, name: str = "result") -> None:
    """Return if `actual` equals `reference` (float64, same shape) within the tolerance of its dtype.

    Otherwise raise AssertionError that names the first wrong tile, the largest error in units of
    the tolerance, how many elements are wrong, and the likely cause. NaN never agrees with a number.
    """
    if not isinstance(actual, torch.Tensor):
        raise AssertionError(f"{name} is {type(actual).__name__}, expected a tensor of shape {list(reference.shape)}.")
    if tuple(actual.shape) != tuple(reference.shape):
        raise AssertionError(f"{name} has shape {list(actual.shape)}, expected {list(reference.shape)}.")
    if actual.numel() == 0:
        return
    actual, reference = actual.detach().to(reference.device), reference.detach()
    rtol, atol = tolerance(actual.dtype, reference, depth, scale, inner)
    for got, want in _pieces(actual, reference):
        try:
            torch.testing.assert_close(got.double(), _held(want, actual.dtype), rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError:
            where = "cpu" if actual.numel() > PIECE else reference.device
            whole = _held(reference.to(where), actual.dtype)
            raise AssertionError(_explain(actual.to(where).double(), whole, rtol, atol, name)) from None


def _pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Flat pieces of tensors of one shape, so that a float64 copy of the whole is never needed."""
    return zip(*(x.flatten().split(PIECE) for x in tensors))


def _held(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The reference in float64; what the result's dtype cannot hold is infinity in both."""
    reference = reference.double()
    if dtype not in _RTOL:
        return reference
    infinite = torch.copysign(torch.full_like(reference, math.inf), reference)
    return torch.where(reference.abs() > torch.finfo(dtype).max, infinite, reference)


def paired(actual: object, expected: object, name: str) -> list[tuple]:
    """(actual, expected, name) of each result of an operator; AssertionError if it returned fewer or more."""
    if not isinstance(expected, tuple):
        return [(actual, expected, name)]
    if not isinstance(actual, (tuple, list)) or len(actual) != len(expected):
        count = len(actual) if isinstance(actual, (tuple, list)) else 1
        raise AssertionError(f"{name} returned {count} results, expected {len(expected)}.")
    return [(got, want, f"{name}, result {part}") for part, (got, want) in enumerate(zip(actual, expected))]


def _explain(actual: torch.Tensor, reference: torch.Tensor, rtol: float, atol: float, name: str) -> str:
    allowed = atol + rtol * reference.abs()
    error = (actual - reference).abs()
    close = (error <= allowed) & error.isfinite()  # an infinite reference allows nothing but itself
    wrong = ~(close | (actual == reference) | (actual.isnan() & reference.isnan()))
    count, total = int(wrong.sum()), wrong.numel()
    place = _first_tile(wrong)
    finite = wrong & error.isfinite()
    if finite.any():
        units = (error / allowed.clamp_min(1e-300))[finite].max().item()
        size = f"the largest error is {units:.3g} times the tolerance"
    else:
        size = "none of the wrong elements is a finite number"
    return (f"{name} is wrong in {count} of {total} elements, first in {place}; {size}. "
            f"Likely cause: {_likely_cause(actual, reference, wrong)}")


def _first_tile(wrong: torch.Tensor) -> str:
    index = [int(i) for i in torch.nonzero(wrong)[0]] if wrong.ndim else []
    if not index:
        return "its only element"
    names = [f"axis {i}" for i in range(len(index) - 2)] + (["rows", "columns"] if len(index) > 1 else ["elements"])
    parts = []
    for axis, (label, i) in enumerate(zip(names, index)):
        low, size = i - i % TILE, wrong.shape[axis]
        parts.append(f"{label} {low}–{min(low + TILE, size) - 1}" if not label.startswith("axis") else f"{label} = {i}")
    return "tile " + ", ".join(parts) + f" (element {index})"


def _likely_cause(actual: torch.Tensor, reference: torch.Tensor, wrong: torch.Tensor) -> str:
    nan = actual.isnan() & ~reference.isnan()
    if nan.all():
        return "no element was written, or every result met a NaN: does the kernel store, and to the right pointer?"
    columns = wrong.reshape(-1, wrong.shape[-1]) if wrong.ndim else wrong.reshape(1, 1)
    bad_columns = columns.any(0).nonzero().flatten()
    width, first = columns.shape[1], int(bad_columns[0])
    tail = width // 2 <= first and 0 < first and len(bad_columns) == width - first
    if nan.any() and not (wrong & ~nan).any():
        where = " at the end of the last axis (the tail)" if tail else ""
        return (f"elements{where} were not written, or were computed from what lies past the end of an input: "
                "look at the masks.")
    if tail:
        return "the tail of the last axis: the last, partly filled block is masked wrongly or left out."
    apart = (actual - reference).abs().where(wrong, torch.zeros_like(actual)).max()
    if apart <= 0.02 * reference[reference.isfinite()].square().mean().sqrt():
        return "nearly right everywhere: is the accumulator fp32, or is something rounded on the way?"
    if actual.ndim >= 2 and actual.shape[-1] == actual.shape[-2]:
        if torch.allclose(actual.transpose(-1, -2), reference, rtol=1e-2, atol=1e-3):
            return "the result is transposed: the two strides are swapped."
    if actual.isfinite().all() and reference.isfinite().all():
        ratio = actual / reference.where(reference != 0, torch.ones_like(reference))
        ratio = ratio.where(reference != 0, ratio.new_tensor(math.nan))
        rows = ratio.reshape(-1, ratio.shape[-1]) if ratio.ndim else ratio.reshape(1, 1)
        if rows.shape[1] > 1:
            low, high = rows.nan_to_num(math.inf).amin(1), rows.nan_to_num(-math.inf).amax(1)
            known = low <= high
            if known.any() and ((high - low)[known] <= 0.02 * high[known].abs() + 1e-6).all():
                if (high[known] == 0).all():
                    return "whole rows are zero: they were left out."
                return "each row is off by one factor: a rescale, a divisor or a scale is missing."
        if torch.allclose(actual.flatten().sort().values, reference.flatten().sort().values, rtol=1e-2, atol=1e-3):
            return "the values are right but in the wrong place: look at strides and offsets."
    if not reference[wrong].isfinite().all() or not actual[wrong].isfinite().all():
        return "infinities or NaN: an overflow, a division by zero, or −inf minus −inf."
    return "the arithmetic itself, or a wrong offset; compare one small case by hand."


# --- poisoned outputs and guarded buffers -----------------------------------------------------

# Bit patterns of the bands: NaN with a payload, one for inputs and another for outputs, so that a NaN that
# was read past the end of an input and stored past the end of an output shows too. Integers: near the largest.
_BITS = {torch.float64: (torch.int64, 0x7FF8_0000_0000_0001), torch.float32: (torch.int32, 0x7FC0_0001),
         torch.float16: (torch.int16, 0x7E01), torch.bfloat16: (torch.int16, 0x7FC1),
         torch.float8_e4m3fn: (torch.uint8, 0x7F), torch.float8_e5m2: (torch.uint8, 0x7D)}


def _bits(dtype: torch.dtype, output: bool) -> tuple[torch.dtype, int]:
    """(integer dtype of that width, pattern) of a band."""
    if dtype in _BITS:
        integer, pattern = _BITS[dtype]
        return integer, pattern + (output if dtype != torch.float8_e4m3fn else 0x80 * output)
    return (torch.uint8, 1 + output) if dtype == torch.bool else (dtype, torch.iinfo(dtype).max - output)


def _buffer(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype, where: torch.device | str,
            output: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(flat poisoned buffer, view of it between two bands)."""
    span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride))
    integer, pattern = _bits(dtype, output)
    flat = torch.full((span + 2 * BAND,), pattern, dtype=integer, device=where).view(dtype)
    return flat, flat.as_strided(tuple(shape), tuple(stride), BAND)


def _verify(flat: torch.Tensor, output: bool, name: str) -> None:
    integer, pattern = _bits(flat.dtype, output)
    for where, band in (("before the start", flat[:BAND]), ("past the end", flat[-BAND:])):
        written = int((band.view(integer) != pattern).sum())
        if written:
            raise AssertionError(f"{name}: {written} elements {where} of the buffer were written: "
                                 "the store needs a mask.")


def guarded(x: torch.Tensor) -> torch.Tensor:
    """A copy of `x` with the same strides that lies between two bands of NaN (or of the largest integer)."""
    _, view = _buffer(x.shape, x.stride(), x.dtype, x.device, output=False)
    if x.numel():  # an expanded axis is stored once
        stored = tuple(slice(1) if stride == 0 else slice(None) for stride in x.stride())
        view[stored].copy_(x[stored])
    return view


class Guard(TorchFunctionMode):
    """Inside `with Guard() as guard:` every torch.empty… is filled with NaN and lies between bands.

    `guard.verify()` raises AssertionError if a band was written to.
    """

    _EMPTY = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)

    def __init__(self, watch: Watch | None = None) -> None:
        super().__init__()
        self.buffers: list[torch.Tensor] = []
        self.watch = watch or Watch()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func in self._EMPTY and isinstance(out, torch.Tensor):
            flat, out = _buffer(out.shape, out.stride(), out.dtype, out.device, output=True)
            self.buffers.append(flat)
            self.watch.fence("an output", flat, BAND)
        return out

    def verify(self, name: str = "output") -> None:
        for flat in self.buffers:
            _verify(flat, True, name)


def _as_bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(_bits(x.dtype, False)[0])


def call(fn: Callable, args: Sequence, kwargs: dict | None = None, name: str = "result", inplace: bool = False,
         reads: float | None = None):
    """fn(*args, **kwargs) on guarded copies of the tensor arguments, with poisoned, guarded outputs.

    Returns what `fn` returns. Raises AssertionError if a band or (unless `inplace`) an input was written to;
    in the interpreter also if a band was read, if two programs stored to one place, or if kernels loaded an
    element of the first argument more than `reads` times on average. NumPy arguments are copied, too.
    """
    copies = [guarded(a) if isinstance(a, torch.Tensor) else a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with watching() as watch, Guard(watch) as guard:
        for i, x in enumerate(copies):
            if isinstance(x, torch.Tensor):
                watch.fence(f"argument {i}", x._base, BAND)
        result = fn(*copies, **(kwargs or {}))
    guard.verify(name)
    for i, (before, after) in enumerate(zip(args, copies)):
        if isinstance(before, torch.Tensor):
            if not inplace and not torch.equal(_as_bits(before), _as_bits(after)):
                raise AssertionError(f"{name}: argument {i} was changed: inputs must be left as they are.")
            _verify(after._base, False, f"{name}, argument {i}")
        elif isinstance(before, np.ndarray) and not inplace and before.tobytes() != after.tobytes():
            raise AssertionError(f"{name}: argument {i} was changed: inputs must be left as they are.")
    if watch.problem:
        raise AssertionError(f"{name}: {watch.problem}")
    if reads is not None and (often := watch.loaded["argument 0"] / max(args[0].numel(), 1)) > reads:
        raise AssertionError(f"{name}: each element of argument 0 was loaded {often:.3g} times, {reads:g} are enough.")
    return result


# --- the battery --------------------------------------------------------------------------------

@dataclasses.dataclass(frozen=True)
class Case:
    """One run of an operator; `skip` says in a few words why it cannot be run here, or is None."""

    label: str
    op: Operator
    args: tuple
    config: Config
    skip: str | None = None

    def run(self) -> None:
        """Run the case and compare it with the float64 reference; AssertionError says what is wrong."""
        expected = self.op.reference(*(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
                                       for a in self.args))
        actual = call(self.op.fn, self.args, self.config.kwargs, self.label)
        depth = self.op.depth(*self.args) if callable(self.op.depth) else self.op.depth
        scale = self.op.scale(*self.args) if self.op.scale else None
        for got, want, name in paired(actual, expected, self.label):
            agree(got, want, depth=depth, scale=scale, name=name)


def _rand(dtype: torch.dtype, seed: int, fill: str) -> Callable[..., torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def rand(*size: int) -> torch.Tensor:
        x = torch.randn(*size, generator=generator)
        if fill == "zeros":
            x = x * 0
        elif fill == "large":  # as large as a sum of a few such numbers can be without overflow
            x = x.clamp(-3, 3) * (torch.finfo(dtype).max / 16)
        elif fill == "-inf":
            x = x.masked_fill(torch.rand(*size, generator=generator) < 0.3, -math.inf)
            if x.ndim > 1 and x.shape[0] > 1:
                x[1] = -math.inf
        return x.to(dtype).to(device.DEVICE)

    return rand


def _strided(x: torch.Tensor) -> torch.Tensor:
    """The same values with a gap after every element of the last axis."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), math.nan if x.is_floating_point() else 0).to(x)
    view = wide[..., ::2]
    return view.copy_(x)


def battery(op: Operator, dtypes: Sequence[torch.dtype] | None = None, seed: int = 0) -> Iterator[Case]:
    """Every case of an operator: shapes × dtypes × configurations, then edge fillings and strided views.

    bf16 cases are given with the reason why they are skipped in the interpreter; configurations
    that the present GPU cannot run are left out.
    """
    configs = [c for c in op.configs if c.offered(device.CC)]
    for dtype in dtypes or op.dtypes:
        short = str(dtype).removeprefix("torch.")
        skip = None
        if dtype == torch.bfloat16 and not device.ON_GPU:
            skip = "the interpreter computes bf16 wrongly"
        elif dtype == torch.bfloat16 and device.CC < 80:
            skip = "bf16 needs compute capability 8.0"
        variants = [(shape, "random", config) for config in configs for shape in op.shapes]
        variants += [(op.shapes[-1], edge, configs[0]) for edge in op.edges]
        for i, (shape, fill, config) in enumerate(variants):
            label = f"{op.name} {short} {'×'.join(map(str, shape))} {fill} ({config})"
            args = () if skip else op.make(shape, dtype, _rand(dtype, seed + i, fill))
            yield Case(label, op, args, config, skip)
        if op.strided and not skip:
            args = op.make(op.shapes[-1], dtype, _rand(dtype, seed, "random"))
            views = tuple(_strided(a) if isinstance(a, torch.Tensor) and a.ndim else a for a in args)
            yield Case(f"{op.name} {short} strided", op, views, configs[0])


def run_battery(ops: Sequence[Operator] | Operator, dtypes: Sequence[torch.dtype] | None = None, seed: int = 0) -> str:
    """Run all cases of one or several operators; returns one sentence, raises at the first case that is wrong."""
    done, skipped = 0, {}
    for op in [ops] if isinstance(ops, Operator) else ops:
        for case in battery(op, dtypes, seed):
            if case.skip:
                skipped[case.skip] = skipped.get(case.skip, 0) + 1
                continue
            case.run()
            done += 1
    if not done and not skipped:
        raise ValueError("ops holds no case: nothing was checked.")
    text = f"all {done} cases agree"
    for reason, count in skipped.items():
        text += f"; {count} skipped: {reason}"
    return text

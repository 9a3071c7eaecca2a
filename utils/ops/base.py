"""What every operator needs: argument checks, configurations, and the table of cases.

`CASES` of a lesson is a list of `Operator`. The lesson's check step, `utils.check.battery`, the
compile gate and the tests all read that one list, so a kernel is described once.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def check_tensor(name: str, x: torch.Tensor, *, ndim: int | None = None, shape: tuple | None = None,
                 dtypes: Sequence[torch.dtype] = FLOATS, dtype: torch.dtype | None = None,
                 like: torch.Tensor | None = None, contiguous: bool = True) -> None:
    """Raise one sentence that names the argument if `x` is not what a kernel can take.

    ndim, shape: what is expected; dtypes: the dtypes supported; dtype: the one demanded;
    like: a tensor whose device it must share; contiguous: whether strides are not supported.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a torch tensor, not {type(x).__name__}: wrap it with torch.as_tensor.")
    if dtype is not None and x.dtype != dtype:
        raise TypeError(f"{name} is {_short(x.dtype)}, expected {_short(dtype)}: convert it with {name}.to({dtype}).")
    if x.dtype not in dtypes:
        known = ", ".join(map(_short, dtypes))
        raise TypeError(f"{name} is {_short(x.dtype)}, supported are {known}: convert it first.")
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} has {x.ndim} dimensions, expected {ndim}: reshape it.")
    if shape is not None and tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {list(x.shape)}, expected {list(shape)}: check which argument is which.")
    if like is not None and x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, the first argument on {like.device}: "
                         f"move it with .to('{like.device}').")
    if x.device.type == "cpu" and not _cpu_ok():
        raise ValueError(f"{name} is a CPU tensor and kernels run on the GPU here: move it with {name}.cuda().")
    if contiguous and not x.is_contiguous():
        raise ValueError(f"{name} is not contiguous (strides {list(x.stride())}): pass {name}.contiguous().")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _cpu_ok() -> bool:
    """CPU tensors run in the interpreter and are described, never read, while only compiling."""
    return compiling or os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


compiling = False  # set by the compile gate, in a process of its own


@dataclasses.dataclass(frozen=True)
class Config:
    """One way to launch an operator: keyword arguments of its wrapper.

    min_cc: the lowest compute capability it is offered on (75, 80, 89, 90 …); not_on: later ones it is not
    offered on; why: what an excluded chip lacks, in a few words.
    """

    kwargs: dict[str, Any]
    min_cc: int = 75
    why: str = ""
    not_on: tuple[int, ...] = ()

    def offered(self, cc: int) -> bool:
        """Whether it is offered on a chip of this compute capability (0, the interpreter, takes all)."""
        return cc == 0 or (cc >= self.min_cc and cc not in self.not_on)

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.kwargs.items()) or "defaults"


def compute_capability(x: torch.Tensor) -> int:
    """90 for an H200's sm_90; 0 for a CPU tensor, which the interpreter takes."""
    major, minor = torch.cuda.get_device_capability(x.device) if x.is_cuda else (0, 0)
    return 10 * major + minor


def sm_count(x: torch.Tensor) -> int:
    """Streaming multiprocessors of the tensor's GPU; 4 in the interpreter, so that persistent loops turn."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4


def descriptor_ok(x: torch.Tensor) -> bool:
    """Whether the copy engine can describe a matrix: last stride 1, rows and address multiples of 16 bytes."""
    return x.stride(-1) == 1 and x.stride(0) * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0


SHORT_MS = 0.3  # a call takes Python some 0.02 ms to issue, and wrappers may launch twice


def autotune(fn: Callable, args: Sequence, configs: Sequence[Config]) -> Config:
    """The fastest of the configurations offered on this GPU, by the median time of fn(*args, **kwargs).

    Long calls are timed one by one with a cold L2. Calls so short that issuing them from Python counts are timed
    as a CUDA graph, so that a second small launch does not decide. Without a GPU nothing can be timed: the first
    one. Configurations that do not fit the chip are skipped.
    """
    import triton

    def milliseconds(call: Callable) -> float:
        each = triton.testing.do_bench(call, warmup=5, rep=25, return_mode="median")
        return each if each > SHORT_MS else triton.testing.do_bench_cudagraph(call, rep=20, return_mode="median")

    cc = compute_capability(args[0])
    if cc == 0:
        return configs[0]
    timed = {}
    for i, config in enumerate(c for c in configs if c.offered(cc)):
        try:
            timed[i] = milliseconds(lambda c=config: fn(*args, **c.kwargs))
        except triton.runtime.errors.OutOfResources:
            continue
    if not timed:
        raise ValueError("none of the configurations runs on this GPU: offer a smaller one.")
    return [c for c in configs if c.offered(cc)][min(timed, key=timed.get)]


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator of the course, described once for all who run it.

    fn: the wrapper, fn(*args, **config.kwargs) -> tensor or tuple of tensors
    reference: the same on float64 tensors, reference(*args) -> the same structure
    make: make(shape, dtype, rand) -> args, where rand(*size) gives random tensors of that dtype
    shapes: sizes of the battery, tails and non-powers of two among them; gate_shape: the one compiled
    depth: number of terms a result is summed from (a number, or a function of the arguments)
    scale: size of the values before they cancel, a function of the arguments (default: the reference's spread)
    edges: further fillings beside random ones: "zeros", "large", "-inf"
    strided: True if views with strides are supported (otherwise they must be refused with a sentence)
    vector: True if the compiled kernel must load 16 bytes at a time; dot: if it must use tensor cores
    """

    name: str
    fn: Callable
    reference: Callable
    make: Callable
    shapes: Sequence[tuple]
    gate_shape: tuple
    configs: Sequence[Config] = (Config({}),)
    dtypes: Sequence[torch.dtype] = FLOATS
    depth: int | Callable = 1
    scale: Callable | None = None
    edges: Sequence[str] = ("zeros", "large")
    strided: bool = False
    vector: bool = True
    dot: bool = False

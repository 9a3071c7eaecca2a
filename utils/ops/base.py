"""What every operator needs: argument checks, configurations, and the table of cases.

`CASES` of a lesson is a list of `Operator`. The lesson's check step, `utils.check.battery`, the
compile gate, the tests and the grader all read that one list, so a kernel is described once.
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
        raise TypeError(f"{name} is {_short(x.dtype)}, supported are {', '.join(map(_short, dtypes))}: convert it first.")
    if ndim is not None and x.ndim != ndim:
        raise ValueError(f"{name} has {x.ndim} dimensions, expected {ndim}: reshape it.")
    if shape is not None and tuple(x.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {list(x.shape)}, expected {list(shape)}: check which argument is which.")
    if like is not None and x.device != like.device:
        raise ValueError(f"{name} is on {x.device}, the first argument on {like.device}: move it with .to('{like.device}').")
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

    min_cc: the lowest compute capability it is offered on (75, 80, 89, 90 …);
    why: what an excluded chip lacks, in a few words.
    """

    kwargs: dict[str, Any]
    min_cc: int = 75
    why: str = ""

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.kwargs.items()) or "defaults"


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

"""Where am I: a GPU or Triton's interpreter, which dtype, which sizes.

Importing this module sets `TRITON_INTERPRET=1` where there is no CUDA device, before triton is
imported. A value that you have set yourself, "0" included, is left as it is.
"""

import importlib.metadata
import importlib.util
import os
import platform
import sys
from typing import TypeVar

import torch

T = TypeVar("T")
_YES = ("1", "true", "on", "yes", "y")  # what Triton reads as true


def _interpreting() -> bool:
    return os.environ.get("TRITON_INTERPRET", "").lower() in _YES


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split("+")[0].split(".")[:2]
    return int(major), int(minor)


HAS_CUDA = torch.cuda.is_available()
HAS_TRITON = importlib.util.find_spec("triton") is not None

if "TRITON_INTERPRET" not in os.environ and not HAS_CUDA:
    if "triton" in sys.modules:
        raise RuntimeError(
            "triton was imported before utils, so its interpreter cannot be switched on any more: "
            "restart the kernel and run the setup cell first."
        )
    os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.10 turns it off by default

INTERPRET = _interpreting()
ON_GPU = HAS_CUDA and not INTERPRET
DEVICE = "cuda" if ON_GPU else "cpu"
CC = 10 * torch.cuda.get_device_capability()[0] + torch.cuda.get_device_capability()[1] if ON_GPU else 0
DTYPE = torch.bfloat16 if CC >= 80 else torch.float16
CPU_NAME = f"CPU, {os.cpu_count()} cores, {platform.machine()}"
NAME = torch.cuda.get_device_name(0) if ON_GPU else CPU_NAME
VERSIONS = {name: _version(name) for name in ("torch", "triton", "numpy")}


def pair_problem(triton: str | None, numpy: str, cc: int, interpret: bool) -> str | None:
    """Why this pair of versions cannot run kernels, in one sentence, or None (known by version)."""
    if triton is None:
        return ("Triton is not installed here (it has wheels for Linux only): the NumPy half of the "
                "course works, for the kernels use Linux, WSL2 or Colab.")
    if 0 < cc < 75:
        return f"this GPU has compute capability {cc / 10}; Triton needs 7.5 or newer."
    if interpret and _release(triton) <= (3, 6) and _release(numpy) >= (2, 4):
        return (f"Triton {triton} cannot interpret kernels with NumPy {numpy}: "
                "run pip install 'numpy<2.4' and restart the kernel.")
    if cc == 75 and _release(triton) == (3, 3):
        return f"Triton {triton} crashes on tl.dot for compute capability 7.5: install 3.4 or newer."
    return None


def need_triton() -> None:
    """Return if kernels can be run here; otherwise raise RuntimeError with one sentence that says why not."""
    problem = pair_problem(VERSIONS["triton"] if HAS_TRITON else None, VERSIONS["numpy"], CC, INTERPRET)
    if problem:
        raise RuntimeError(problem[0].upper() + problem[1:])
    if _interpreting() != INTERPRET:
        raise RuntimeError("TRITON_INTERPRET was changed after utils was imported: restart the kernel.")
    if not ON_GPU and not INTERPRET:
        raise RuntimeError(
            "There is no CUDA device and TRITON_INTERPRET=0 was set by hand, so no kernel can run: "
            "unset it and restart the kernel."
        )


def pick(*, gpu: T, cpu: T) -> T:
    """`gpu` on a CUDA device, `cpu` in the interpreter: one line for sizes that differ."""
    return gpu if ON_GPU else cpu


def l2_bytes() -> int:
    """Bytes of the last cache before memory: the GPU's L2, or 32 MiB assumed for a CPU."""
    return torch.cuda.get_device_properties(0).L2_cache_size if ON_GPU else 32 * 2**20


def free_bytes() -> int:
    """Free device memory in bytes (on a CPU, a fixed 2 GiB: the course never needs more there)."""
    return torch.cuda.mem_get_info()[0] if ON_GPU else 2 * 2**30


def banner() -> str:
    """One line for the setup cell: the device, how kernels run, the dtype, the versions."""
    if ON_GPU:
        how = f"compute capability {CC / 10}, {str(DTYPE).removeprefix('torch.')}"
    elif not HAS_TRITON:
        how = "no triton: NumPy half only"
    elif INTERPRET:
        how = "kernels run in Triton's interpreter, checked and never timed"
    else:
        how = "TRITON_INTERPRET=0 and no GPU: kernels cannot run"
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in VERSIONS.items())
    return f"{NAME} | {how} | Python {platform.python_version()}, {versions}"

"""Compile kernels ahead of time for any NVIDIA chip, without one: registers, spills, instructions.

The compiler runs in a process of its own with TRITON_INTERPRET=0, where a stand-in for the driver
names the chip and every launch stops after compiling. Used by the lessons, the labs' checks and the
compile gate. Needs triton's wheel (which carries ptxas and cuobjdump), no GPU.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SHARED_LIMIT = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}  # KiB a program may use


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler made of one launch for one chip (`cc` 75 is sm_75), or why it could not.

    registers: a thread; stack: bytes a thread (above 0 means spills); shared: bytes a program;
    tensor_cores: the instruction used for dots ("wgmma", "mma", "tcgen05") or ""; wide_loads: 16-byte loads
    """

    kernel: str
    cc: int
    error: str = ""
    registers: int = 0
    stack: int = 0
    shared: int = 0
    tensor_cores: str = ""
    wide_loads: int = 0
    label: str = ""
    ptx: str = ""

    @property
    def fits(self) -> bool:
        """Whether its shared memory is within what the chip has."""
        return self.shared <= SHARED_LIMIT[self.cc] * 1024


def _run(job: dict, timeout: float) -> list[Compiled]:
    env = dict(os.environ, TRITON_INTERPRET="0", PYTHONPATH=os.pathsep.join(
        [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as folder:
        if "source" in job:
            path = Path(folder) / "source.py"
            path.write_text("import torch\nimport triton\nimport triton.language as tl\n" + job.pop("source"))
            job["path"] = str(path)
        answer = Path(folder) / "answer.json"
        done = subprocess.run([sys.executable, "-m", "utils.aot", str(answer)], input=json.dumps(job), env=env,
                              capture_output=True, text=True, timeout=timeout, cwd=folder)
        if not answer.exists():
            raise RuntimeError("the compiling process ended early: " + (done.stderr.strip().splitlines() or ["?"])[-1])
        return [Compiled(**row) for row in json.loads(answer.read_text())]


def compile_launch(source: str, kernel: str, args: Sequence[Any], meta: dict[str, Any],
                   ccs: Sequence[int] = (75, 90), timeout: float = 120) -> list[Compiled]:
    """Compile kernel[grid](*args, **meta) for each compute capability; a row for each.

    source: Python text that defines `kernel` (torch, triton and tl are imported for it)
    args: tensors (only dtype, shape and strides matter), numbers or None; meta: constexprs, num_warps …
    """
    import torch

    def describe(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
                    "stride": list(value.stride())}
        return value

    return _run({"source": source, "kernel": kernel, "args": [describe(a) for a in args], "meta": meta,
                 "ccs": list(ccs)}, timeout)


def compile_operators(module: str, ccs: Sequence[int], names: Sequence[str] = (),
                      timeout: float = 600) -> list[Compiled]:
    """Compile the operators of a module's CASES (such as "utils.ops.gemm"), all or those named.

    Every configuration for every chip it is offered on, in the dtype that the course uses on that chip.
    """
    return _run({"module": module, "ccs": list(ccs), "names": list(names)}, timeout)


def source_of(kernel: Any) -> str:
    """The text of the notebook cell or file in which a kernel was written."""
    import linecache

    fn = getattr(kernel, "fn", kernel)
    return "".join(linecache.getlines(fn.__code__.co_filename))


# --- the compiling process ----------------------------------------------------------------------

class _Chip:
    """Stands in for the CUDA driver and names the chip to compile for."""

    def __init__(self, cc: int) -> None:
        self.cc = cc

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.cc, 32)

    def get_current_device(self) -> int:
        return self.cc  # compiled kernels are kept by device: one a chip

    def get_current_stream(self, _device: int) -> int:
        return 0


def _resources(cubin: bytes) -> tuple[int, int]:
    """(registers, stack bytes) a thread, as cuobjdump reports them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"REG:(\d+)", text)[1]), int(re.search(r"STACK:(\d+)", text)[1])


def _describe(name: str, cc: int, kernel: Any, label: str, keep_ptx: bool) -> dict:
    ptx = kernel.asm["ptx"]
    registers, stack = _resources(kernel.asm["cubin"])
    units = (("wgmma", "wgmma.mma_async"), ("tcgen05", "tcgen05.mma"), ("mma", "mma.sync"))
    used = next((short for short, text in units if text in ptx), "")
    wide = len(re.findall(r"ld\.global[^;]*\.(?:v4\.b32|v2\.b64|v8\.b32|v4\.b64)|cp\.async\.bulk\.tensor|"
                          r"cp\.async\.c[ag]\.shared\.global [^;]*, 0x10", ptx))
    return dataclasses.asdict(Compiled(name, cc, "", registers, stack, kernel.metadata.shared, used, wide, label,
                                       ptx if keep_ptx else ""))


def _main(answer: str) -> None:
    import importlib.util
    import itertools

    import torch
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    from utils.ops import base

    job, rows, launched = json.load(sys.stdin), [], []
    launch = JITFunction.run

    def only_compile(self, *args, grid, warmup, **kwargs):
        kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
        launched.append((self.fn.__name__, kernel))
        return kernel

    JITFunction.run, base.compiling = only_compile, True

    def attempt(name: str, cc: int, label: str, action) -> None:
        launched.clear()
        driver.set_active(_Chip(cc))
        try:
            action()
            rows.extend(_describe(kernel_name, cc, kernel, label, "path" in job) for kernel_name, kernel in launched)
            if not launched:
                raise RuntimeError("nothing was launched")
        except Exception as error:
            rows.append(dataclasses.asdict(Compiled(name, cc, _sentence(error), label=label)))

    if "path" in job:
        spec = importlib.util.spec_from_file_location("source", job["path"])
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = lambda a: torch.empty_strided(a["shape"], a["stride"], dtype=getattr(torch, a["dtype"]))
        args = [made(a) if isinstance(a, dict) else a for a in job["args"]]
        for cc in job["ccs"]:
            attempt(job["kernel"], cc, "", lambda: getattr(module, job["kernel"])[(1,)](*args, **job["meta"]))
    else:
        for op in importlib.import_module(job["module"]).CASES:
            for config, cc in itertools.product(op.configs, job["ccs"]):
                usual = torch.bfloat16 if cc >= 80 else torch.float16  # what the course uses on that chip
                dtype = usual if usual in op.dtypes else op.dtypes[0]
                if config.offered(cc) and (op.name in job["names"] or not job["names"]):
                    rand = lambda *size: torch.empty(size, dtype=dtype)
                    attempt(op.name, cc, f"{op.name} ({config})",
                            lambda: op.fn(*op.make(op.gate_shape, dtype, rand), **config.kwargs))
    Path(answer).write_text(json.dumps(rows))


def _sentence(error: BaseException) -> str:
    """The line of a compiler's error that says what is wrong."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


if __name__ == "__main__":
    _main(sys.argv[1])

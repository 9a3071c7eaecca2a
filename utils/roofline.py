"""Machines as rooflines: measured and datasheet roofs, attainable speed, which wall an operator meets.

Roofline model: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009. Attainable FLOP/s = min(peak, intensity · bandwidth).
"""

import dataclasses
import datetime
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch

from utils import device
from utils.cost import Work

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "machine.json"


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine's roofs.

    copy, read: bytes/s of memory when as much is written as read, and when only read
    peak: FLOP/s by kind of arithmetic: "fp32" (CUDA cores), and tensor cores by dtype
    source: "measured", "datasheet" or "recorded"; date: of the measurement, ISO
    """

    name: str
    copy: float
    read: float
    peak: dict[str, float]
    source: str = "measured"
    date: str = ""

    def bandwidth(self, work: Work) -> float:
        """Bytes/s of the memory roof that `work` stands under."""
        return self.read if work.roof == "read" else self.copy

    def compute(self, work: Work, cuda_cores: bool = False) -> float:
        """FLOP/s of the compute roof; `cuda_cores` asks for the roof without tensor cores (Triton's on a T4)."""
        key = "fp32" if cuda_cores else work.dtype
        if key not in self.peak:
            raise ValueError(f"{self.name} has no {key} roof; known are {', '.join(sorted(self.peak))}.")
        return self.peak[key]

    def attainable(self, work: Work, cuda_cores: bool = False) -> float:
        """FLOP/s that the roofs allow at the intensity of `work` (0 for work without FLOPs)."""
        if not work.flops:
            return 0.0
        return min(self.compute(work, cuda_cores), work.intensity * self.bandwidth(work))

    def time_floor(self, work: Work, cuda_cores: bool = False) -> float:
        """µs that `work` takes at least: the larger of bytes over bandwidth and FLOPs over peak."""
        compute = work.flops / self.compute(work, cuda_cores) if work.flops else 0.0
        return 1e6 * max(work.bytes / self.bandwidth(work), compute)

    def wall(self, work: Work, cuda_cores: bool = False) -> str:
        """The roof that binds: "copy" or "read" (memory), or the dtype whose peak is met (compute)."""
        if work.flops and work.flops / self.compute(work, cuda_cores) > work.bytes / self.bandwidth(work):
            return "fp32" if cuda_cores else work.dtype
        return work.roof

    def ridge(self, dtype: str, roof: str = "copy") -> float:
        """Intensity in FLOP/B at which the memory roof meets the compute roof."""
        return self.peak[dtype] / (self.read if roof == "read" else self.copy)

    @staticmethod
    def datasheet(name: str) -> "Machine":
        """The vendor's dense peak rates of a GPU ("T4", "L4", "A100", "H100", "H200", "B200")."""
        if name not in _DATASHEET:
            raise ValueError(f"no datasheet for {name!r}; known are {', '.join(_DATASHEET)}.")
        bandwidth, peak = _DATASHEET[name]
        return Machine(f"{name} (datasheet)", bandwidth * 1e9, bandwidth * 1e9,
                       {kind: tera * 1e12 for kind, tera in peak.items()}, "datasheet")

    @staticmethod
    def recorded(gpu: str = "nvidia-h200", lesson: str = "01_roofline") -> "Machine":
        """The roofs of the run whose rows are stored in utils/recorded/<gpu>.csv.

        A contestant of that run that beat the best product has raised the compute roof (a cool chip can).
        """
        from utils import record

        rows = record.load(lesson, "roof", gpu)
        rate = dict(zip(rows.implementation, (rows.bytes + rows.flops) / rows.us * 1e6))  # one of the two is 0
        every = record.load(lesson, gpu=gpu)
        best = (every.flops / every.us * 1e6).groupby(every.roof).max()
        peak = {kind: float(max(value, best[kind])) for kind, value in rate.items() if kind not in ("copy", "read")}
        return Machine(rows.gpu[0], rate["copy"], rate["read"], peak, "recorded", rows.date[0])

    @staticmethod
    def measured(refresh: bool = False) -> "Machine":
        """This machine's roofs, measured once and kept in an ignored file (keyed by GPU, driver and torch).

        copy: the faster of torch's copy and the course's; read: the course's read-only sum;
        peak: the best matrix product over several sizes and, for fp32, the course's chain of FMAs.
        """
        if not device.ON_GPU:
            return Machine.measured_cpu()
        key = f"{device.NAME} | {_driver()} | torch {torch.__version__}"
        return _kept(key, _measure_gpu, refresh)

    @staticmethod
    def measured_cpu(refresh: bool = False) -> "Machine":
        """The CPU's roofs in fp32 (torch's copy, sum and matrix product); on a shared machine they wander by half."""
        return _kept(f"{device.CPU_NAME} | torch {torch.__version__}", _measure_cpu, refresh)


def _kept(key: str, measure: Callable[[], Machine], refresh: bool) -> Machine:
    """A measured machine, from the ignored file if it is there (a broken file is measured again)."""
    try:
        known = dict(json.loads(CACHE.read_text()))
    except (OSError, ValueError, TypeError):
        known = {}
    if not refresh and key in known:
        try:
            return Machine(**known[key])
        except TypeError:  # written by another version of the course
            pass
    known[key] = dataclasses.asdict(measure())
    CACHE.parent.mkdir(exist_ok=True)
    CACHE.write_text(json.dumps(known, indent=1))
    return Machine(**known[key])


# GB/s and dense TFLOP/s (TOP/s for int8) from the vendor's datasheets, SXM parts where there are several.
_DATASHEET = {
    "T4": (320, {"fp32": 8.1, "fp16": 65, "int8": 130}),
    "L4": (300, {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8": 242, "int8": 242}),
    "A100": (2039, {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}),
    "H100": (3350, {"fp32": 67, "tf32": 494, "fp16": 989, "bf16": 989, "fp8": 1979, "int8": 1979}),
    "H200": (4800, {"fp32": 67, "tf32": 494, "fp16": 989, "bf16": 989, "fp8": 1979, "int8": 1979}),
    "B200": (8000, {"fp32": 75, "tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500, "int8": 4500}),
}


def datasheet_of(name: str) -> Machine | None:
    """The datasheet whose name occurs in a device's name ("NVIDIA H200" → H200), or None."""
    found = [key for key in _DATASHEET if key in name.replace("-", " ").split()]
    return Machine.datasheet(found[0]) if found else None


def _driver() -> str:
    """The GPU driver's version, part of the key under which measured roofs are kept."""
    if not device.ON_GPU:
        return "no driver"
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    try:
        return "driver " + subprocess.run(ask, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "driver unknown"


def _scaled_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _gemm_operands(n: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
    if dtype == torch.int8:
        return (30 * a).to(dtype), (30 * b).to(dtype).t()  # K-major, as int8 and fp8 products want it
    return a.to(dtype), (b.to(dtype).t() if dtype == torch.float8_e4m3fn else b.to(dtype))


def _gemm_peaks() -> dict[str, float]:
    """FLOP/s of the vendor library's best square matrix product, by kind of arithmetic that the GPU has."""
    from utils import bench

    kinds = {  # lowest compute capability, dtype, product, sizes
        "fp32": (0, torch.float32, torch.mm, (4096,)), "fp16": (75, torch.float16, torch.mm, (2048, 4096, 8192)),
        "int8": (75, torch.int8, torch._int_mm, (4096, 8192)), "tf32": (80, torch.float32, torch.mm, (4096, 8192)),
        "bf16": (80, torch.bfloat16, torch.mm, (2048, 4096, 8192)),
        "fp8": (89, torch.float8_e4m3fn, _scaled_mm, (4096, 8192)),
    }
    peaks, before = {}, torch.get_float32_matmul_precision()
    for kind, (cc, dtype, product, sizes) in kinds.items():
        if device.CC < cc:
            continue
        torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
        peaks[kind] = max(2 * n**3 / bench.time(product, *_gemm_operands(n, dtype)).us * 1e6 for n in sizes)
    torch.set_float32_matmul_precision(before)
    return peaks


def _measure_gpu() -> Machine:
    from utils import bench
    from utils.ops import roofline as ops

    n = min(2**31, device.free_bytes() // 16)
    x = torch.randn(n, device="cuda", dtype=device.DTYPE)
    read = 2 * n / bench.time(ops.read_sum, x).us * 1e6
    half, y = x[: n // 2], torch.empty_like(x[: n // 2])
    copies = bench.time_many({"torch": lambda x, y: y.copy_(x), "course": lambda x, y: ops.copy(x, out=y)}, (half, y))
    copy = max(2 * n / t.us * 1e6 for t in copies.values())  # half the elements, read and written
    peak, z = _gemm_peaks(), torch.randn(2**26, device="cuda")
    chain = bench.time(lambda z: ops.fma_chain(z, 1024, UNROLL=64, BLOCK=2048), z)
    peak["fp32"] = max(peak["fp32"], 2 * 1024 * z.numel() / chain.us * 1e6)
    return Machine(device.NAME, copy, max(read, copy), peak, "measured", datetime.date.today().isoformat())


def _measure_cpu() -> Machine:
    from utils import bench

    x = torch.randn(2**24)
    y, a = torch.empty_like(x), torch.randn(1024, 1024)
    copy = 2 * x.nbytes / bench.time_cpu(lambda: y.copy_(x)).us * 1e6
    read = x.nbytes / bench.time_cpu(torch.sum, x).us * 1e6
    peak = 2 * 1024**3 / bench.time_cpu(torch.mm, a, a).us * 1e6
    today = datetime.date.today().isoformat()
    return Machine(device.CPU_NAME, copy, max(read, copy), {"fp32": peak}, "measured", today)

"""FLOPs and bytes of the operators: what each has to do, before anything is measured.

Bytes are *compulsory traffic*: every input read once, every output written once. A second read
that an algorithm could have avoided is not counted, so a slow algorithm shows as a low bandwidth.
One multiply-add is two FLOPs; exp, rsqrt and the like count as one. Sizes are in elements.
"""

import dataclasses
import math

import torch

PEAK_OF = {  # which compute roof a dtype's arithmetic stands under
    torch.float64: "fp64", torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.int8: "int8", torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}


@dataclasses.dataclass(frozen=True)
class Work:
    """What one call has to do.

    flops: operations; bytes: compulsory traffic; dtype: the compute roof ("fp32", "bf16" …);
    roof: the memory roof, "copy" where about as much is written as read, "read" where hardly
    anything is written.
    """

    flops: float
    bytes: float
    dtype: str = "fp32"
    roof: str = "copy"

    @property
    def intensity(self) -> float:
        """FLOP per byte (0 for no bytes and no FLOPs, infinite for FLOPs without bytes)."""
        if self.bytes:
            return self.flops / self.bytes
        return math.inf if self.flops else 0.0

    def __add__(self, other: "Work") -> "Work":
        """Two operators run one after the other; both must stand under the same compute roof."""
        if self.dtype != other.dtype:
            raise ValueError(f"these works stand under different roofs: {self.dtype} and {other.dtype}")
        roof = self.roof if self.roof == other.roof else "copy"
        return Work(self.flops + other.flops, self.bytes + other.bytes, self.dtype, roof)


def _check(dtype: torch.dtype, **sizes: int) -> int:
    """Check sizes and dtype; return bytes per element."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise ValueError(f"{name} must be a count of elements (an int, 0 or more), not {size!r}")
    if dtype not in PEAK_OF:
        raise TypeError(f"dtype must be a torch dtype such as torch.float16, not {dtype!r}")
    return dtype.itemsize


def copy(n: int, dtype: torch.dtype) -> Work:
    """y = x over n elements: one read and one write."""
    item = _check(dtype, n=n)
    return Work(0, 2 * n * item, PEAK_OF[dtype])


def add(n: int, dtype: torch.dtype) -> Work:
    """z = x + y over n elements: two reads, one write, one FLOP an element."""
    item = _check(dtype, n=n)
    return Work(n, 3 * n * item, "fp32")


def axpy(n: int, dtype: torch.dtype) -> Work:
    """y = a·x + y over n elements: two reads, one write, two FLOPs an element."""
    item = _check(dtype, n=n)
    return Work(2 * n, 3 * n * item, "fp32")


def fma_chain(n: int, k: int, dtype: torch.dtype) -> Work:
    """k multiply-adds on each of n elements, read once and written once: 2·k FLOPs an element."""
    item = _check(dtype, n=n, k=k)
    return Work(2 * k * n, 2 * n * item, "fp32")


def elementwise(n: int, dtype: torch.dtype, inputs: int = 1, flops: int = 1) -> Work:
    """Any element-wise operator with `inputs` inputs, one output and `flops` FLOPs an element."""
    item = _check(dtype, n=n, inputs=inputs, flops=flops)
    return Work(flops * n, (inputs + 1) * n * item, "fp32")


def silu(n: int, dtype: torch.dtype) -> Work:
    """y = x·sigmoid(x): negate, exp, add, divide: four FLOPs an element."""
    return elementwise(n, dtype, inputs=1, flops=4)


def transpose(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """[rows, cols] → [cols, rows]: a copy in another order."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(0, 2 * rows * cols * item, PEAK_OF[dtype])


def strided_copy(n: int, dtype: torch.dtype) -> Work:
    """y[i] = x[i·stride] for n outputs, whatever the stride: n reads and n writes are compulsory."""
    return copy(n, dtype)


def strided_copy_bytes(n: int, stride: int, dtype: torch.dtype, sector: int = 32) -> int:
    """Bytes that a strided copy of n outputs moves when memory is read in aligned pieces of `sector` bytes, each
    fetched once, and written without gaps. Equals the sectors counted by lesson 02's simulator."""
    item = _check(dtype, n=n, stride=stride, sector=sector)
    if not stride or not sector:
        raise ValueError(f"{'sector' if stride else 'stride'} must be 1 or more, not 0")
    if n == 0:
        return 0
    step = stride * item
    sectors = n if step >= sector else (n - 1) * step // sector + 1  # far apart: one each; close: none is skipped
    return sectors * sector + n * item


def embedding(tokens: int, dim: int, dtype: torch.dtype, index_bytes: int = 8, distinct: int | None = None) -> Work:
    """Gather `tokens` rows of `dim` elements: the ids and each of the `distinct` rows read once, all rows written.

    Without `distinct` all ids are taken to be different.
    """
    distinct = tokens if distinct is None else distinct
    item = _check(dtype, tokens=tokens, dim=dim, index_bytes=index_bytes, distinct=distinct)
    return Work(0, (tokens + distinct) * dim * item + tokens * index_bytes, PEAK_OF[dtype])


def sum_all(n: int, dtype: torch.dtype) -> Work:
    """The sum of n elements: one read, n − 1 additions, one fp32 result of 4 bytes."""
    item = _check(dtype, n=n)
    return Work(max(n - 1, 0), n * item + 4, "fp32", "read")


def sum_rows(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """Sums along the last axis: one read, cols − 1 additions a row, one fp32 result of 4 bytes a row."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(rows * max(cols - 1, 0), rows * (cols * item + 4), "fp32", "read")


def softmax(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """Softmax over the last axis: max, subtract, exp, sum, divide: five FLOPs an element."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(5 * rows * cols, 2 * rows * cols * item, "fp32")


def rms_norm(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """x / rms(x) · γ over the last axis: four FLOPs an element, γ read once."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(4 * rows * cols, (2 * rows * cols + cols) * item, "fp32")


def gemm(m: int, n: int, k: int, dtype: torch.dtype, out: torch.dtype | None = None) -> Work:
    """C[m, n] = A[m, k] · B[k, n]: 2·m·n·k FLOPs; A and B read once, C written once.

    `out` is the dtype of C where it differs (int8 inputs give int32, say). With little output
    against the inputs (less than a tenth of the bytes) the memory roof is the read-only one.
    """
    item = _check(dtype, m=m, n=n, k=k)
    if out is not None and not isinstance(out, torch.dtype):
        raise TypeError(f"out must be a torch dtype such as torch.int32, not {out!r}")
    read, written = (m * k + k * n) * item, m * n * (out or dtype).itemsize
    return Work(2 * m * n * k, read + written, PEAK_OF[dtype], "read" if written < 0.1 * read else "copy")


def tiled_gemm_bytes(m: int, n: int, k: int, block_m: int, block_n: int, dtype: torch.dtype) -> int:
    """Bytes that a tiled GEMM without any cache moves: every row of tiles reads all of B again,
    every column of tiles all of A; C is written once. Equals the loads counted in lesson 04."""
    item = _check(dtype, m=m, n=n, k=k, block_m=block_m, block_n=block_n)
    for name, block in (("block_m", block_m), ("block_n", block_n)):
        if not block:
            raise ValueError(f"{name} must be 1 or more, not 0")
    return (-(-n // block_n) * m * k + -(-m // block_m) * k * n + m * n) * item


def attention(batch: int, heads: int, s_q: int, s_k: int, d: int, dtype: torch.dtype,
              causal: bool = False, kv_heads: int | None = None) -> Work:
    """softmax(Q·Kᵀ/√d)·V without storing the scores: 4·s_q·s_k·d FLOPs a head (the two GEMMs, as is usual).

    Q and O are [batch, heads, s_q, d], K and V [batch, kv_heads, s_k, d]. Causal is aligned to the
    end (query i sees keys up to i + s_k − s_q); only pairs that are seen count.
    """
    kv_heads = heads if kv_heads is None else kv_heads
    item = _check(dtype, batch=batch, heads=heads, s_q=s_q, s_k=s_k, d=d, kv_heads=kv_heads)
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"heads ({heads}) must be a multiple of kv_heads ({kv_heads})")
    pairs = s_q * s_k
    if causal:
        pairs = sum(min(max(i + s_k - s_q + 1, 0), s_k) for i in range(s_q))
    q_o, k_v = 2 * batch * heads * s_q * d * item, 2 * batch * kv_heads * s_k * d * item
    return Work(4 * batch * heads * pairs * d, q_o + k_v, PEAK_OF[dtype], "read" if q_o < 0.1 * k_v else "copy")


def linear_silu_separate(m: int, n: int, k: int, dtype: torch.dtype) -> Work:
    """silu(A·B + bias) as a GEMM with bias and a second kernel: C is written, read and written again."""
    item = _check(dtype, m=m, n=n, k=k)
    return gemm(m, n, k, dtype) + Work(5 * m * n, (n + 2 * m * n) * item, PEAK_OF[dtype])

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


def softmax_bytes(rows: int, cols: int, reads: int, dtype: torch.dtype) -> int:
    """Bytes that a softmax moves if it reads its input `reads` times and writes once, no cache: three for
    max, sum and write apart, two for the online form, one if a row stays in registers. Counted in lesson 06."""
    item = _check(dtype, rows=rows, cols=cols, reads=reads)
    return (reads + 1) * rows * cols * item


def softmax_backward(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """dx = y·(dy − Σ y·dy) over the last axis: y and dy read, dx written; four FLOPs an element."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(4 * rows * cols, 3 * rows * cols * item, "fp32")


def cross_entropy(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """Loss and logsumexp of each row of logits: max, subtract, exp, sum: four FLOPs an element.

    The logits and one int64 target a row are read, two fp32 results a row written.
    """
    item = _check(dtype, rows=rows, cols=cols)
    return Work(4 * rows * cols, rows * cols * item + rows * (8 + 4 + 4), "fp32", "read")


def cross_entropy_grad(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """Loss of each row and the gradient softmax − onehot: five FLOPs an element, logits read and gradient written.

    One int64 target a row is read, one fp32 loss a row written. Reading the logits a second time is not counted.
    """
    item = _check(dtype, rows=rows, cols=cols)
    return Work(5 * rows * cols, 2 * rows * cols * item + rows * (8 + 4), "fp32")


def linear_cross_entropy(m: int, v: int, k: int, dtype: torch.dtype) -> Work:
    """Loss and logsumexp of X[m, k] · W[v, k]ᵀ without storing the logits: 2·m·v·k + 4·m·v FLOPs.

    X, W and one int64 target a row are read, two fp32 results a row written.
    """
    item = _check(dtype, m=m, v=v, k=k)
    read, written = (m * k + v * k) * item + 8 * m, 8 * m
    return Work(2 * m * v * k + 4 * m * v, read + written, PEAK_OF[dtype], "read")


def rms_norm(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """x / rms(x) · γ over the last axis: four FLOPs an element, γ read once."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(4 * rows * cols, (2 * rows * cols + cols) * item, "fp32")


def layer_norm(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """(x − mean) / std · γ + β over the last axis: sum, subtract, square, add, three to scale: seven FLOPs."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(7 * rows * cols, (2 * rows * cols + 2 * cols) * item, "fp32")


def add_rms_norm(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """h = x + residual and its RMSNorm in one pass: two reads, two writes, five FLOPs an element, γ read once."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(5 * rows * cols, (4 * rows * cols + cols) * item, "fp32")


def rms_norm_backward(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """dx and dγ from dy, x, γ and rstd (fp32): two reads, one write, nine FLOPs an element (lesson 07, section 4).

    x̂ 1, dy·γ 1, mean of g·x̂ 2, g − x̂·mean 2, times rstd 1, dγ 2.
    """
    item = _check(dtype, rows=rows, cols=cols)
    return Work(9 * rows * cols, (3 * rows * cols + 2 * cols) * item + 4 * rows, "fp32")


def layer_norm_backward(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """dx, dγ and dβ from dy, x, γ, mean and rstd (fp32): two reads, one write, thirteen FLOPs an element.

    Those of rms_norm_backward, and x − mean 1, mean of g 1, its subtraction 1, dβ 1.
    """
    item = _check(dtype, rows=rows, cols=cols)
    return Work(13 * rows * cols, (3 * rows * cols + 3 * cols) * item + 8 * rows, "fp32")


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


def gelu_chain(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """γ ⊙ gelu(x + bias) on [rows, cols] in one kernel, GELU by tanh: x, bias and γ read once, y written once.

    11 FLOPs an element: the bias 1, u = c·z·(1 + a·z²) 5, tanh 1, ½·z·(1 + tanh u) 3, the scale 1.
    """
    item = _check(dtype, rows=rows, cols=cols)
    return Work(11 * rows * cols, (2 * rows * cols + 2 * cols) * item, "fp32")


def gelu_chain_separate(rows: int, cols: int, dtype: torch.dtype) -> Work:
    """The same as three kernels: each reads an array of [rows, cols] and writes one."""
    item = _check(dtype, rows=rows, cols=cols)
    return Work(11 * rows * cols, (6 * rows * cols + 2 * cols) * item, "fp32")


def silu_mul(n: int, dtype: torch.dtype) -> Work:
    """z = silu(gate)·up over n elements: two reads, one write; SiLU's four FLOPs and a product."""
    return elementwise(n, dtype, inputs=2, flops=5)


def silu_mul_backward(n: int, dtype: torch.dtype) -> Work:
    """(dz, gate, up) → (dgate, dup) over n elements: three reads, two writes.

    Sigmoid four FLOPs, silu = gate·sigmoid one, dup = dz·silu one, silu' = s + silu·(1 − s) three,
    dgate = dz·(up·silu') two.
    """
    item = _check(dtype, n=n)
    return Work(11 * n, 5 * n * item, "fp32")


def gate_up(m: int, f: int, k: int, dtype: torch.dtype) -> Work:
    """silu(X·Wg)·(X·Wu) with X[m, k], Wg[k, f], Wu[k, f]: X and both weights read once, [m, f] written."""
    item = _check(dtype, m=m, f=f, k=k)
    read, written = (m * k + 2 * k * f) * item, m * f * item
    return Work(4 * m * f * k + 5 * m * f, read + written, PEAK_OF[dtype], "read" if written < 0.1 * read else "copy")


def gate_up_separate(m: int, f: int, k: int, dtype: torch.dtype) -> Work:
    """The same as two GEMMs, SiLU and a product, each through memory: X read twice, [m, f] moved seven times."""
    item = _check(dtype, m=m, f=f, k=k)
    products, pointwise = 2 * gemm(m, f, k, dtype).bytes, (2 + 3) * m * f * item
    return Work(4 * m * f * k + 5 * m * f, products + pointwise, PEAK_OF[dtype])


def swiglu_ffn(m: int, f: int, k: int, dtype: torch.dtype) -> Work:
    """(silu(X·Wg)·(X·Wu))·Wd with X[m, k], Wd[f, k]: six FLOPs a weight and token; X, weights and Y once."""
    item = _check(dtype, m=m, f=f, k=k)
    read, written = (m * k + 3 * k * f) * item, m * k * item
    return Work(6 * m * f * k + 5 * m * f, read + written, PEAK_OF[dtype], "read" if written < 0.1 * read else "copy")


def split_k_bytes(m: int, n: int, k: int, splits: int, dtype: torch.dtype) -> int:
    """Bytes that a GEMM split along K moves: those of `gemm`, and for more than one slice the fp32 workspace
    [splits, m, n], written once and read once. Equals the elements counted in lesson 05."""
    _check(dtype, m=m, n=n, k=k, splits=splits)
    if not splits:
        raise ValueError("splits must be 1 or more, not 0")
    return gemm(m, n, k, dtype).bytes + (2 * splits * m * n * 4 if splits > 1 else 0)


def grouped_gemm(tokens: int, n: int, k: int, experts: int, dtype: torch.dtype) -> Work:
    """Each of `tokens` rows of A[tokens, k] times the [n, k] weight of its expert: 2·tokens·n·k FLOPs.

    `experts` counts those that got a token: only their weights are read. Offsets (a few bytes an expert) do not count.
    """
    item = _check(dtype, tokens=tokens, n=n, k=k, experts=experts)
    read, written = (tokens * k + experts * n * k) * item, tokens * n * item
    return Work(2 * tokens * n * k, read + written, PEAK_OF[dtype], "read" if written < 0.1 * read else "copy")


def _windows(size: int, kernel: int, stride: int, padding: int) -> int:
    """Places of a window along one axis."""
    if not stride:
        raise ValueError("stride must be 1 or more, not 0")
    return max((size + 2 * padding - kernel) // stride + 1, 0)


def conv2d(batch: int, height: int, width: int, c_in: int, c_out: int, r: int, s: int, dtype: torch.dtype,
           stride: int = 1, padding: int = 0) -> Work:
    """Convolution of [batch, height, width, c_in] with [c_out, r, s, c_in]: 2·r·s·c_in FLOPs an output element.

    Products with the padding's zeros count, as is usual; image and weight are read once, the output written once.
    """
    item = _check(dtype, batch=batch, height=height, width=width, c_in=c_in, c_out=c_out, r=r, s=s,
                  stride=stride, padding=padding)
    places = batch * _windows(height, r, stride, padding) * _windows(width, s, stride, padding)
    read, written = (batch * height * width * c_in + c_out * r * s * c_in) * item, places * c_out * item
    return Work(2 * places * c_out * r * s * c_in, read + written, PEAK_OF[dtype],
                "read" if written < 0.1 * read else "copy")


def im2col(batch: int, height: int, width: int, c_in: int, r: int, s: int, dtype: torch.dtype,
           stride: int = 1, padding: int = 0) -> Work:
    """The image's windows written out as rows of r·s·c_in elements: the image read, the windows written."""
    item = _check(dtype, batch=batch, height=height, width=width, c_in=c_in, r=r, s=s, stride=stride, padding=padding)
    places = batch * _windows(height, r, stride, padding) * _windows(width, s, stride, padding)
    return Work(0, (batch * height * width * c_in + places * r * s * c_in) * item, PEAK_OF[dtype])


def depthwise_conv2d(batch: int, height: int, width: int, c: int, r: int, s: int, dtype: torch.dtype,
                     stride: int = 1, padding: int = 0) -> Work:
    """Each channel convolved with its own r × s window: 2·r·s FLOPs an output element, on CUDA cores."""
    item = _check(dtype, batch=batch, height=height, width=width, c=c, r=r, s=s, stride=stride, padding=padding)
    places = batch * _windows(height, r, stride, padding) * _windows(width, s, stride, padding)
    elements = batch * height * width * c + r * s * c + places * c
    return Work(2 * places * c * r * s, elements * item, "fp32")

import torch
import triton
import triton.language as tl

from utils.ops.base import Config, Operator, check_tensor

@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(z_ptr + offs, x + y, mask=mask)

@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        tl.store(y_ptr + offs, tl.load(x_ptr + offs))
    else:
        tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)

def copy(x, out=None, BLOCK=1024, num_warps=4):
    y = torch.empty_like(x) if out is None else out
    n = x.numel()
    copy_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, BLOCK=BLOCK, num_warps=num_warps)
    return y

@triton.jit
def sum_kernel(x_ptr, partial_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * STEPS * BLOCK
    acc = tl.zeros((BLOCK,), tl.float32)
    if start + STEPS * BLOCK <= n:
        for step in tl.static_range(STEPS):
            acc += tl.load(x_ptr + start + step * BLOCK + tl.arange(0, BLOCK)).to(tl.float32)
    else:
        for step in range(STEPS):
            offs = start + step * BLOCK + tl.arange(0, BLOCK)
            acc += tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    tl.store(partial_ptr + tl.program_id(0), tl.sum(acc))

def read_sum(x, STEPS=16, BLOCK=4096, num_warps=8):
    while True:
        n = x.numel()
        programs = triton.cdiv(n, STEPS * BLOCK)
        partial = torch.empty(programs, dtype=torch.float32, device=x.device)
        sum_kernel[(programs,)](x, partial, n, STEPS=STEPS, BLOCK=BLOCK, num_warps=num_warps)
        if programs == 1:
            return partial[0]
        x = partial

@triton.jit
def fma_chain_kernel(x_ptr, y_ptr, n, K: tl.constexpr, UNROLL: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    for _ in range(K // UNROLL):
        for _ in tl.static_range(UNROLL):
            x = x * 0.9990234375 + 0.0009765625
    for _ in tl.static_range(K % UNROLL):
        x = x * 0.9990234375 + 0.0009765625
    tl.store(y_ptr + offs, x, mask=mask)

def fma_chain(x, k, UNROLL=16, BLOCK=1024, num_warps=4):
    y = torch.empty_like(x)
    n = x.numel()
    fma_chain_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, K=k, UNROLL=UNROLL, BLOCK=BLOCK, num_warps=num_warps)
    return y

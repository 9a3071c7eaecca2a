"""Configurations that the compile gate must refuse, each for another reason; its tests compile them."""

import functools

import torch

from utils.ops import gemm as ops
from utils.ops.base import Config, Operator

_GEMM = dict(reference=None, make=lambda shape, dtype, rand: (rand(shape[0], shape[2]), rand(shape[2], shape[1])),
             shapes=[], gate_shape=(256, 512, 128))


def _one_element_a_time(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Strides of 2, so that nothing can be loaded 16 bytes at a time."""
    return ops.gemm(torch.stack([a, a], -1).flatten(1)[:, ::2], torch.stack([b, b], -1).flatten(1)[:, ::2])


def _plain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype)
    ops.gemm_rowcol_kernel[(1, 1)](a, b, c, a.shape[1], *a.stride(), *b.stride(), c.shape[1], BLOCK_K=128)
    return c


def _tile(m: int, n: int, k: int, warps: int, stages: int) -> tuple[Config]:
    return (Config(dict(BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_warps=warps, num_stages=stages)),)


CASES = [
    Operator("spills", ops.gemm, configs=_tile(128, 256, 64, 4, 1), dot=True, **_GEMM),
    Operator("too much shared memory", ops.gemm, configs=_tile(128, 256, 128, 8, 4), dot=True, **_GEMM),
    Operator("no tensor cores", _plain, dot=True, vector=False, **_GEMM),
    Operator("narrow loads", _one_element_a_time, dot=True, **_GEMM),
    Operator("does not compile", functools.partial(ops.gemm, precision="half"), dot=True, **_GEMM),
]

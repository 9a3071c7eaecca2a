"""Wrong answers to lab 04 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


COUNT = '''def step_intensity(block_m, block_n, block_k, item):
    return 2 * block_m * block_n * block_k / ((block_m + block_n) * block_k * item)

def square_tile(bandwidth, peak, item):
    tile = 16
    while tile / item < peak / bandwidth:
        tile *= 2
    return tile

def best_tile(m, n, k, area, item):
    rows, block_m = [], 16
    while area // block_m >= 16:
        block_n = area // block_m
        from_a, from_b = -(-n // block_n) * m * k, -(-m // block_m) * n * k
        rows.append(((from_a + from_b + m * n) * item, block_m, block_n))
        block_m *= 2
    moved, block_m, block_n = min(rows)
    return block_m, block_n, moved

def grid(m, n, k, block_m, block_n, block_k, sms):
    tiles_m, tiles_n, steps = -(-m // block_m), -(-n // block_n), -(-k // block_k)
    programs = tiles_m * tiles_n
    waves = -(-programs // sms)
    useful = m * n * k / (programs * block_m * block_n * steps * block_k)
    return programs, waves, useful, programs / (waves * sms)
'''

plant("4.1", COUNT,
      ("a multiply-add counted as one FLOP", "return 2 * block_m", "return block_m"),
      ("elements instead of bytes", "while tile / item <", "while tile <"),
      ("B loaded once only", "-(-m // block_m) * n * k", "n * k"),
      ("A and B exchanged", "-(-n // block_n) * m * k, -(-m // block_m) * n * k",
       "-(-m // block_m) * m * k, -(-n // block_n) * n * k"),
      ("masked lanes counted", "-(-n // block_n) * m * k", "-(-n // block_n) * (-(-m // block_m) * block_m) * k"),
      ("C not counted", "from_a + from_b + m * n", "from_a + from_b"),
      ("smallest side left out", "rows, block_m = [], 16", "rows, block_m = [], 32"),
      ("tiles rounded down", "-(-m // block_m), -(-n // block_n), -(-k // block_k)",
       "m // block_m + 1, n // block_n + 1, -(-k // block_k)"),
      ("padding of K forgotten", "steps * block_k)", "k)"),
      ("waves rounded down", "-(-programs // sms)", "programs // sms + 1"))

ORDER = '''def snake(tiles_m, tiles_n, group):
    order = []
    for first in range(0, tiles_m, group):
        columns = list(range(tiles_n))
        if first // group % 2:
            columns.reverse()
        for pid_n in columns:
            for pid_m in range(first, min(first + group, tiles_m)):
                order.append((pid_m, pid_n))
    return np.array(order)

def misses(order, capacity):
    cache, missed = [], 0
    for pid_m, pid_n in order:
        for strip in (("A", int(pid_m)), ("B", int(pid_n))):
            if strip in cache:
                cache.remove(strip)
            else:
                missed += 1
                if len(cache) == capacity:
                    cache.pop(0)
            cache.append(strip)
    return missed
'''

plant("4.2", ORDER,
      ("no turn", "columns.reverse()", "pass"),
      ("last group not shorter", "min(first + group, tiles_m)", "first + group"),
      ("last group left out", "range(0, tiles_m, group)", "range(0, tiles_m - tiles_m % group, group)"),
      ("pair turned round", "order.append((pid_m, pid_n))", "order.append((pid_n, pid_m))"),
      ("first in, first out", "cache.remove(strip)", "continue"),
      ("newest leaves", "cache.pop(0)", "cache.pop()"),
      ("A and B under one name", '(("A", int(pid_m)), ("B", int(pid_n)))', "(int(pid_m), int(pid_n))"),
      ("one strip too many", "len(cache) == capacity", "len(cache) > capacity"))

DW = '''@triton.jit
def dw_kernel(x_ptr, dy_ptr, dw_ptr, db_ptr, M, N, K, stride_xm, stride_xk, stride_ym, stride_yn, stride_wk, stride_wn,
              BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_k, pid_n = tl.program_id(0), tl.program_id(1)
    offs_k = pid_k.to(tl.int64) * BLOCK_K + tl.arange(0, BLOCK_K)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_k, mask_n = offs_k < K, offs_n < N
    acc = tl.zeros((BLOCK_K, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, M, BLOCK_M):
        offs_m = start + tl.arange(0, BLOCK_M).to(tl.int64)
        mask_m = offs_m < M
        x = tl.load(x_ptr + offs_k[:, None] * stride_xk + offs_m[None, :] * stride_xm,
                    mask=mask_k[:, None] & mask_m[None, :], other=0.0)
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn,
                     mask=mask_m[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(x, dy, acc, input_precision="ieee")
        db += tl.sum(dy.to(tl.float32), axis=0)
    tl.store(dw_ptr + offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn,
             acc, mask=mask_k[:, None] & mask_n[None, :])
    if pid_k == 0:
        tl.store(db_ptr + offs_n, db, mask=mask_n)
'''

plant("4.3", DW,
      ("dropped tail of the sum", "range(0, M, BLOCK_M)", "range(0, M // BLOCK_M * BLOCK_M, BLOCK_M)"),
      ("tail of dY not masked", "mask=mask_m[:, None] & mask_n[None, :]", "mask=mask_n[None, :]"),
      ("strides of X swapped", "offs_k[:, None] * stride_xk + offs_m[None, :] * stride_xm",
       "offs_k[:, None] * stride_xm + offs_m[None, :] * stride_xk"),
      ("stores past the last column", "acc, mask=mask_k[:, None] & mask_n[None, :]", "acc, mask=mask_k[:, None]"),
      ("fp16 accumulator", 'acc = tl.dot(x, dy, acc, input_precision="ieee")',
       'acc = (acc + tl.dot(x, dy, input_precision="ieee")).to(tl.float16).to(tl.float32)'),
      ("db of the last step only", "db += tl.sum", "db = tl.sum"))

MATMUL = '''@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
                    mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
                    mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, acc,
             mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))
'''

plant("4.4", MATMUL,
      ("zero times NaN", "mask=(offs_k[:, None] < K) & (offs_n[None, :] < N)", "mask=offs_n[None, :] < N"),
      ("mask along K without the step", "mask=(offs_k[:, None] < K)", "mask=(offs_k[:, None] - start < K)"),
      ("masked in B instead of A", "mask=(offs_m[:, None] < M) & (offs_k[None, :] < K)", "mask=offs_m[:, None] < M"))

PROMOTED = '''def promoted(a, b, chunk):
    a, b = a.astype(np.float32), b.astype(np.float32)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for first in range(0, a.shape[1], chunk):
        acc = np.zeros(total.shape, np.float16)
        for k in range(first, min(first + chunk, a.shape[1])):
            acc = (acc.astype(np.float32) + a[:, k, None] * b[k]).astype(np.float16)
        total = total + acc.astype(np.float32)
    return total

def stall(term, bits):
    return term * 2.0**bits
'''

plant("4.5", PROMOTED,
      ("fp32 all along", "a[:, k, None] * b[k]).astype(np.float16)", "a[:, k, None] * b[k])"),
      ("total in fp16", "total = total + acc.astype(np.float32)",
       "total = (total + acc.astype(np.float32)).astype(np.float16).astype(np.float32)"),
      ("result in fp16", "return total", "return total.astype(np.float16)"),
      ("product rounded, too", "+ a[:, k, None] * b[k])", "+ (a[:, k, None] * b[k]).astype(np.float16))"),
      ("last chunk left out", "range(0, a.shape[1], chunk)", "range(0, a.shape[1] - chunk + 1, chunk)"),
      ("stalls one power too early", "2.0**bits", "2.0**(bits - 1)"),
      ("stall counts the terms", "term * 2.0**bits", "2.0**bits"))
PLANTED["accumulator never emptied"] = ("4.5", "# EXERCISE 4.5\n" + PROMOTED.replace(
    "        acc = np.zeros(total.shape, np.float16)\n", "").replace(
    "    for first", "    acc = np.zeros(total.shape, np.float16)\n    for first"))

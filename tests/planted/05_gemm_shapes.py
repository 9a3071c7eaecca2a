"""Wrong answers to lab 05 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


COUNT = '''def min_rows(n, k, item, bandwidth, peak):
    ridge = peak / bandwidth
    gain = 2 * n * k - ridge * item * (n + k)
    return int(np.ceil(ridge * item * n * k / gain)) if gain > 0 else 0

def extra_bytes(m, n, slices):
    if slices == 1:
        return 0, 0
    return (4 + 8 * slices + 4) * m * n, 8 * slices * m * n

def best_slices(m, n, k, block_n, block_k, places, flight, latency, bandwidth):
    tiles, blocks, times = -(-n // block_n), -(-k // block_k), []
    for steps in range(1, blocks + 1):
        slices = -(-blocks // steps)
        programs = tiles * slices
        rate = min(flight / latency, bandwidth / min(programs, places))
        time = -(-programs // places) * steps * block_k * block_n * 2 / rate
        times.append((time + (8 * slices * m * n / bandwidth if slices > 1 else 0), slices))
    time, slices = min(times)
    return slices, 1e6 * time
'''

plant("5.1", COUNT,
      ("only the weight's bytes", "(n + k)", "0"),
      ("elements for bytes", "item * n * k / gain", "n * k / gain"),
      ("an M for every weight", " if gain > 0 else 0", ""),
      ("an atomic addition only writes", "(4 + 8 * slices + 4)", "(4 + 4 * slices + 4)"),
      ("workspace in 16 bits", "8 * slices * m * n\n\n", "4 * slices * m * n\n\n"),
      ("one slice split all the same", "if slices == 1", "if slices == 0"),
      ("slices as if K could be cut anywhere", "steps * block_k * block_n * 2 / rate",
       "k / slices * block_n * 2 / rate"),
      ("all programs run at once", "-(-programs // places) * steps", "steps"),
      ("bandwidth for each program alone", "bandwidth / min(programs, places)", "bandwidth"),
      ("bandwidth shared by those who wait", "bandwidth / min(programs, places)", "bandwidth / programs"),
      ("workspace written, never read", "(8 * slices * m * n / bandwidth", "(4 * slices * m * n / bandwidth"),
      ("the smaller side alone decides", "if gain > 0 else 0", "if min(n, k) > ridge * item / 2 else 0"),
      ("a token more where the quotient is whole", "int(np.ceil(ridge * item * n * k / gain))",
       "int(ridge * item * n * k / gain) + 1"),
      ("a wave more where the last one is full", "-(-programs // places)", "(programs // places + 1)"),
      ("search ends at 64 slices", "range(1, blocks + 1)", "range(-(-blocks // 64), blocks + 1)"),
      ("a tile no wider than C", "block_k * block_n * 2", "block_k * min(block_n, n) * 2"))

LINE = '''def segments(tiles, steps, programs):
    short, more = divmod(tiles * steps, programs)
    found, at = [], 0
    for program in range(programs):
        end = at + short + (program < more)
        while at < end:
            tile = at // steps
            cut = min(end, (tile + 1) * steps)
            found.append((program, tile, at - tile * steps, cut - tile * steps))
            at = cut
    return np.array(found)

def multiply(a, b, work, block_m, block_n, block_k):
    c = np.zeros((len(a), b.shape[1]), np.float32)
    tiles_n = -(-b.shape[1] // block_n)
    for _, tile, first, stop in work:
        m, n = tile // tiles_n * block_m, tile % tiles_n * block_n
        k = slice(first * block_k, stop * block_k)
        c[m:m + block_m, n:n + block_n] += a[m:m + block_m, k] @ b[k, n:n + block_n]
    return c, int((np.bincount(work[:, 1]) > 1).sum())
'''

plant("5.2", LINE,
      ("remainder dropped", "at + short + (program < more)", "at + short"),
      ("remainder to the last programs", "(program < more)", "(program >= programs - more)"),
      ("segment leaves its tile", "min(end, (tile + 1) * steps)", "end"),
      ("steps counted along the line", "at - tile * steps, cut - tile * steps", "at, cut"),
      ("tiles cut, not steps", "short, more = divmod(tiles * steps, programs)",
       "short, more = [steps * x for x in divmod(tiles, programs)]"),
      ("what is missing goes to the last program", "at + short + (program < more)",
       "min(at - (-tiles * steps // programs), tiles * steps)"),
      ("tiles without a segment are NaN", "for _, tile, first, stop in work:",
       "for tile in set(range(tiles_n * -(-len(a) // block_m))) - set(work[:, 1].tolist()):\n"
       "        m, n = tile // tiles_n * block_m, tile % tiles_n * block_n\n"
       "        c[m:m + block_m, n:n + block_n] = np.nan\n"
       "    for _, tile, first, stop in work:"),
      ("programs counted instead of segments", "int((np.bincount(work[:, 1]) > 1).sum())",
       "sum(len({p for p, t, *_ in work.tolist() if t == tile}) > 1 for tile in set(work[:, 1].tolist()))"),
      ("partial sums overwrite each other", "+= a[m", "= a[m"),
      ("tiles column after column", "tile // tiles_n * block_m, tile % tiles_n * block_n",
       "tile % (-(-len(a) // block_m)) * block_m, tile // (-(-len(a) // block_m)) * block_n"),
      ("columns of tiles rounded down", "-(-b.shape[1] // block_n)", "max(b.shape[1] // block_n, 1)"),
      ("segments counted instead of tiles", "int((np.bincount(work[:, 1]) > 1).sum())",
       "len(work) - len(set(work[:, 1].tolist()))"))

EXPERTS = '''@triton.jit
def experts_kernel(x_ptr, w_ptr, ids_ptr, gates_ptr, y_ptr, N, K, stride_xt, stride_we, stride_wn,
                   TOP: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_N,), tl.float32)
    for j in range(0, TOP):
        e = tl.load(ids_ptr + t * TOP + j).to(tl.int64)
        gate = tl.load(gates_ptr + t * TOP + j, mask=e >= 0, other=0.0).to(tl.float32)
        w_rows = w_ptr + e * stride_we + offs_n[:, None].to(tl.int64) * stride_wn
        part = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
        for start in range(0, K, BLOCK_K):
            offs_k = start + tl.arange(0, BLOCK_K)
            mask_k = offs_k < K
            x = tl.load(x_ptr + t * stride_xt + offs_k, mask=mask_k, other=0.0)
            w = tl.load(w_rows + offs_k[None, :], mask=(offs_n < N)[:, None] & mask_k[None, :] & (e >= 0), other=0.0)
            part += w.to(tl.float32) * x.to(tl.float32)[None, :]
        acc += gate * tl.sum(part, 1)
    tl.store(y_ptr + t * N + offs_n, acc.to(y_ptr.dtype.element_ty), mask=offs_n < N)
'''

plant("5.3", EXPERTS,
      ("the last expert only", "acc += gate", "acc = gate"),
      ("gate multiplied to what is there", "acc += gate * tl.sum(part, 1)", "acc = gate * (acc + tl.sum(part, 1))"),
      ("dropped tail along K", "range(0, K, BLOCK_K)", "range(0, K // BLOCK_K * BLOCK_K, BLOCK_K)"),
      ("expert −1 read", "mask_k[None, :] & (e >= 0)", "mask_k[None, :]"),
      ("rows of w lie K apart", "* stride_wn", "* K"),
      ("last block stored whole", "mask=offs_n < N)\n", "mask=offs_n < N + BLOCK_N)\n"),
      ("negative gates cut off", "acc += gate *", "acc += tl.maximum(gate, 0.0) *"),
      ("parts rounded to the inputs' dtype", "tl.sum(part, 1)", "tl.sum(part, 1).to(x_ptr.dtype.element_ty)"),
      ("rows past N read", "(offs_n < N)[:, None] & mask_k[None, :]", "mask_k[None, :]"),
      ("ids of another token", "tl.load(ids_ptr + t * TOP + j)", "tl.load(ids_ptr + t + j)"),
      ("partial sums in fp16", "acc += gate * tl.sum(part, 1)", "acc += gate * tl.sum(part, 1).to(tl.float16)"))
PLANTED["expert 0 read for the dropped"] = ("5.3", PLANTED["expert −1 read"][1].replace(
    "e * stride_we", "tl.maximum(e, 0) * stride_we"))

SPLIT = '''@triton.jit
def split_k_bias_kernel(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, length, stride_am, stride_ak, stride_bk, stride_bn,
                        BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_s = tl.program_id(2)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_m, mask_n = offs_m < M, offs_n < N
    first = pid_s.to(tl.int64) * length
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if pid_s == 0:  # the bias is added once
        acc += tl.load(bias_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]
    for step in range(0, length, BLOCK_K):
        offs_k = first + step + tl.arange(0, BLOCK_K)
        mask_k = (offs_k < K) & (offs_k < first + length)  # the last step may be shorter
        a = tl.load(a_ptr + offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :] * stride_ak,
                    mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :].to(tl.int64) * stride_bn,
                    mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(c_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :], acc,
                  mask=mask_m[:, None] & mask_n[None, :], sem="relaxed")
'''

WHOLE = "mask_k = (offs_k < K) & (offs_k < first + length)"
ADD = SPLIT[SPLIT.index("    tl.atomic_add("):]
plant("5.4", SPLIT,
      ("a slice reaches into the next", WHOLE, "mask_k = offs_k < K"),
      ("the end of K forgotten", WHOLE, "mask_k = offs_k < first + length"),
      ("last steps of slices left out", "range(0, length, BLOCK_K)", "range(0, length // BLOCK_K * BLOCK_K, BLOCK_K)"),
      ("length without the beginning", WHOLE, "mask_k = (offs_k < K) & (offs_k < length)"),
      ("rows past M read", "mask=mask_m[:, None] & mask_k[None, :]", "mask=mask_k[None, :]"),
      ("loaded, added and stored, no atomic", ADD, """\
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * N + offs_n[None, :]
    mask = mask_m[:, None] & mask_n[None, :]
    tl.store(c_ptrs, tl.load(c_ptrs, mask=mask) + acc, mask=mask)
"""))

WINDOW = '''def window_index(shape, R, S, stride, padding, dilation, rows, cols):
    B, H, W, C = shape
    P = (H + 2 * padding - dilation * (R - 1) - 1) // stride + 1
    Q = (W + 2 * padding - dilation * (S - 1) - 1) // stride + 1
    m, k = rows[:, None], cols[None, :]
    n, p, q = m // (P * Q), m // Q % P, m % Q
    r, s, c = k // (S * C), k // C % S, k % C
    h = p * stride - padding + r * dilation
    v = q * stride - padding + s * dilation
    inside = (h >= 0) & (h < H) & (v >= 0) & (v < W)
    return np.where(inside, ((n * H + h) * W + v) * C + c, -1)
'''

plant("5.5", WINDOW,
      ("span without dilation", "W + 2 * padding - dilation * (S - 1) - 1", "W + 2 * padding - S"),
      ("rows of windows rounded up", "(H + 2 * padding - dilation * (R - 1) - 1) // stride + 1",
       "-(-(H + 2 * padding - dilation * (R - 1) - 1) // stride) + 1"),
      ("a window too few where the stride fits", "(W + 2 * padding - dilation * (S - 1) - 1) // stride + 1",
       "(W + 2 * padding - dilation * (S - 1)) // stride"),
      ("padding once", "W + 2 * padding", "W + padding"),
      ("channels slowest", "k // (S * C), k // C % S, k % C", "k // S % R, k % S, k // (R * S)"),
      ("neighbours a pixel apart", "r * dilation", "r"),
      ("windows a pixel apart", "q * stride", "q"),
      ("left border not looked at", "& (v >= 0) ", ""),
      ("image as NCHW", "((n * H + h) * W + v) * C + c", "((n * C + c) * H + h) * W + v"))

READ = '''def verdict(m, n, k, item, us, bandwidth, peak):
    memory = 1e6 * item * (m * k + k * n + m * n) / bandwidth
    compute = 1e6 * 2 * m * n * k / peak
    share = np.maximum(memory, compute) / us
    wall = np.where(compute > memory, 2, 1)
    return np.where(share > 1, -1, np.where(share < 0.8, 0, wall))

def fewest(slices, us):
    return int(slices[us <= 1.05 * us.min()].min())
'''

plant("5.6", READ,
      ("milliseconds", "1e6 * item", "1e3 * item"),
      ("item left out", "item * (m * k", "(m * k"),
      ("C left out", "k * n + m * n)", "k * n)"),
      ("A left out", "(m * k + k * n", "(k * n"),
      ("C twice", "k * n + m * n)", "k * n + 2 * m * n)"),
      ("wall from the tokens alone", "compute > memory", "m > peak / bandwidth * item / 2"),
      ("tolerance of 6 %", "us <= 1.05 * us.min()", "us <= 1.06 * us.min()"),
      ("most slices taken for the fastest", "us.min()].min()", "us[slices.argmax()]].min()"),
      ("floors added", "np.maximum(memory, compute)", "(memory + compute)"),
      ("impossible times taken for walls", "np.where(share > 1, -1, np.where(share < 0.8, 0, wall))",
       "np.where(share < 0.8, 0, wall)"),
      ("walls exchanged", "compute > memory", "compute < memory"),
      ("the fastest", "slices[us <= 1.05 * us.min()].min()", "slices[us.argmin()]"),
      ("first in the table's order", "slices[us <= 1.05 * us.min()].min()", "slices[(us <= 1.05 * us.min()).argmax()]"))

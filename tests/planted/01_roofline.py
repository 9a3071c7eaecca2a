"""Wrong answers to lab 01 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


COUNT = '''def count_scale(n, item):
    return n, 2 * n * item

def count_dot(n, item):
    return 2 * n - 1, (2 * n + 1) * item

def count_row_mean(m, n, item):
    return m * n, (m * n + m) * item

def count_gemv(m, n, item):
    return 2 * m * n, (m * n + n + m) * item

def count_rank_one(m, n, item):
    return 2 * m * n, (2 * m * n + m + n) * item

def count_linear_bias(m, n, k, item):
    return 2 * m * n * k + m * n, (m * k + k * n + n + m * n) * item
'''

plant("1.1", COUNT,
      ("only the reads counted", "return n, 2 * n * item", "return n, n * item"),
      ("one sum too many", "return 2 * n - 1, (2", "return 2 * n, (2"),
      ("result of the dot product forgotten", "(2 * n + 1) * item", "2 * n * item"),
      ("elements instead of bytes", "(m * n + n + m) * item", "m * n + n + m"),
      ("A read but not written", "(2 * m * n + m + n)", "(m * n + m + n)"),
      ("bias as large as C", "(m * k + k * n + n + m * n)", "(m * k + k * n + m * n + m * n)"),
      ("bias without its FLOPs", "2 * m * n * k + m * n, (", "2 * m * n * k, ("))

PREDICT = '''def predict(flops, bytes, bandwidth, peak):
    memory, compute = bytes / bandwidth, flops / peak
    return 1e6 * max(memory, compute), int(compute > memory)
'''

plant("1.2", PREDICT,
      ("memory and compute swapped", "compute > memory", "memory > compute"),
      ("times added", "max(memory, compute)", "(memory + compute)"),
      ("the faster wall", "max(memory, compute)", "min(memory, compute)"),
      ("milliseconds", "1e6 *", "1e3 *"))

AXPY = '''@triton.jit
def axpy_kernel(a, x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(z_ptr + offs, a * x + y, mask=mask)
'''

plant("1.3", AXPY,
      ("no mask on the store", "a * x + y, mask=mask)", "a * x + y)"),
      ("tail left out", "mask = offs < n", "mask = offs < n // BLOCK * BLOCK"),
      ("every program does the first block", "tl.program_id(0).to(tl.int64) * BLOCK + tl.arange", "tl.arange"),
      ("rounded to fp16 on the way", "a * x + y", "(a * x).to(tl.float16).to(tl.float32) + y"))

ROOFS = '''def attainable(flops, hbm_bytes, l2_bytes, hbm_bandwidth, l2_bandwidth, peak):
    def roof(moved, bandwidth):
        return np.divide(flops, moved, out=np.full(len(flops), np.inf), where=moved > 0) * bandwidth
    return np.minimum(peak, np.minimum(roof(hbm_bytes, hbm_bandwidth), roof(l2_bytes, l2_bandwidth)))
'''

plant("1.4", ROOFS,
      ("no peak", "np.minimum(peak, ", "np.minimum(np.inf, "),
      ("L2 ignored", "roof(l2_bytes, l2_bandwidth)", "np.inf"),
      ("no bytes, no speed", "np.full(len(flops), np.inf)", "np.zeros(len(flops))"),
      ("levels exchanged", "roof(hbm_bytes, hbm_bandwidth), roof(l2_bytes, l2_bandwidth)",
       "roof(l2_bytes, hbm_bandwidth), roof(hbm_bytes, l2_bandwidth)"))

DECODE = '''def decode_intensity(heads, kv_heads, s, d, item):
    return 4 * heads * s * d / ((2 * heads * d + 2 * kv_heads * s * d) * item)
'''

plant("1.5", DECODE,
      ("K and V ignored", "2 * heads * d + 2 * kv_heads * s * d", "2 * heads * d"),
      ("K without V", "2 * kv_heads * s * d", "kv_heads * s * d"),
      ("every query head reads its own K and V", "2 * kv_heads * s * d", "2 * heads * s * d"),
      ("query and output ignored", "2 * heads * d + ", ""))

MAX = '''@triton.jit
def block_max_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=-float("inf")).to(tl.float32)
    tl.store(out_ptr + tl.program_id(0), tl.max(x))
'''

plant("1.6", MAX,
      ("padding of zero", 'other=-float("inf")', "other=0.0"),
      ("mask too wide", "mask=offs < n,", "mask=offs < n + BLOCK,"),
      ("padding of minus one", 'other=-float("inf")', "other=-1.0"))

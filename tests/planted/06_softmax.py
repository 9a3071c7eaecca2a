"""Wrong answers to lab 06 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


COUNT = '''def loss_bytes(rows, cols, item):
    logits, small = rows * cols * item, rows * (8 + 4)
    return 2 * logits + rows * item + small, logits + small, 3 * logits + small

def predict(rows, cols, item, sms, registers, l2, programs, bandwidth):
    block = 2 ** int(cols - 1).bit_length()
    under_way = min(rows, sms * programs) * cols * item
    trips = 2 if 4 * block <= registers / 2 or under_way <= l2 else 3
    return trips, 1e6 * trips * rows * cols * item / bandwidth

def unroll(item, sms, clock, bandwidth):
    exps, columns = sms * 16 * clock, bandwidth / item
    if exps <= columns:
        return 0
    step = 1
    while exps / (1 + 1 / step) < columns:
        step *= 2
    return step
'''

plant("6.1", COUNT,
      ("logits read once for the gradient", "3 * logits", "2 * logits"),
      ("the picked number not counted", "+ rows * item + small", "+ small"),
      ("picking reads all log-probabilities", "2 * logits + rows * item", "3 * logits"),
      ("targets of four bytes", "rows * (8 + 4)", "rows * (4 + 4)"),
      ("block not rounded up", "2 ** int(cols - 1).bit_length()", "cols"),
      ("a power of two too far", "int(cols - 1).bit_length()", "int(cols).bit_length()"),
      ("row in registers in 16 bits", "4 * block <=", "item * block <="),
      ("all registers for the row", "registers / 2", "registers"),
      ("L2 must hold the matrix", "min(rows, sms * programs) * cols", "rows * cols"),
      ("more programs than rows", "min(rows, sms * programs)", "sms * programs"),
      ("a program an SM", "min(rows, sms * programs)", "min(rows, sms)"),
      ("write forgotten", "1e6 * trips * rows", "1e6 * (trips - 1) * rows"),
      ("exponentials too slow for any UNROLL", "return 0", "return 1"),
      ("bytes for columns", "bandwidth / item", "bandwidth"),
      ("one exp a step only", "(1 + 1 / step)", "(1 / step)"),
      ("half a register file is always 64 KiB", "registers / 2", "65536"),
      ("few rows always fit into the L2", "or under_way <= l2", "or rows <= sms * programs or under_way <= l2"),
      ("the L2 holds whole blocks", "min(rows, sms * programs) * cols", "min(rows, sms * programs) * block"),
      ("the L2 holds fp32", "min(rows, sms * programs) * cols * item", "min(rows, sms * programs) * cols * 4"),
      ("half of the L2", "under_way <= l2", "under_way <= l2 / 2"),
      ("all GPUs have 132 SMs", "min(rows, sms * programs)", "min(rows, 132 * programs)"),
      ("four programs on every SM", "min(rows, sms * programs)", "min(rows, sms * 4)"),
      ("a row that just fits does not", "under_way <= l2", "under_way < l2"),
      ("every clock is 1 GHz", "sms * 16 * clock", "sms * 16e9"),
      ("UNROLL ends at 64", "    return step", "    return min(step, 64)"),
      ("one exp a column is enough", "exps <= columns", "exps < columns"))

PIECES = '''def lse_stream(chunks):
    m, d = -np.inf, 0.0
    for x in chunks:
        new = np.maximum(m, x.max(1, initial=-np.inf))
        shift = np.where(np.isneginf(new), 0, new)
        d = d * np.exp(m - shift) + np.exp(x - shift[:, None]).sum(1)
        m = new
    with np.errstate(divide="ignore"):
        return shift + np.log(d)

def combine(o, lse):
    top = lse.max(0)
    shift = np.where(np.isneginf(top), 0, top)
    weight = np.exp(lse - shift)
    total = weight.sum(0)
    seen = np.where(weight[:, :, None] > 0, o, 0)
    whole = (weight[:, :, None] * seen).sum(0) / np.where(total > 0, total, 1)[:, None]
    with np.errstate(divide="ignore"):
        return whole, shift + np.log(total)
'''

plant("6.2", PIECES,
      ("stream without rescale", "d * np.exp(m - shift) +", "d +"),
      ("rescaled by the new maximum", "d * np.exp(m - shift)", "d * np.exp(new - shift)"),
      ("rescaled the wrong way", "np.exp(m - shift)", "np.exp(shift - m)"),
      ("maximum of the last chunk only", "np.maximum(m, x.max(1, initial=-np.inf))", "x.max(1, initial=-np.inf)"),
      ("maximum begins at 0", "m, d = -np.inf", "m, d = 0.0"),
      ("empty chunk not thought of", "x.max(1, initial=-np.inf)", "x.max(1)"),
      ("padding of empty chunks is 0", "initial=-np.inf", "initial=0"),
      ("minus infinity minus itself", "shift = np.where(np.isneginf(new), 0, new)", "shift = new"),
      ("sum in fp16", "np.exp(x - shift[:, None]).sum(1)",
       "np.exp(x - shift[:, None]).astype(np.float16).sum(1, dtype=np.float16).astype(np.float32)"),
      ("maximum not added back", "return shift + np.log(d)", "return np.log(d)"),
      ("parts weigh the same", "(weight[:, :, None] * seen).sum(0) / np.where(total > 0, total, 1)[:, None]",
       "seen.mean(0)"),
      ("parts weigh as their LSE", "weight = np.exp(lse - shift)", "weight = np.where(np.isneginf(lse), 0, lse)"),
      ("LSE not shifted", "    shift = np.where(np.isneginf(top), 0, top)", "    shift = np.zeros_like(top)"),
      ("shifted by each part's own LSE", "weight = np.exp(lse - shift)", "weight = np.where(np.isneginf(lse), 0, 1.0)"),
      ("zero times what nobody wrote", "np.where(weight[:, :, None] > 0, o, 0)", "o"),
      ("zero by zero", "np.where(total > 0, total, 1)[:, None]", "total[:, None]"),
      ("LSE of the heaviest part", "return whole, shift + np.log(total)", "return whole, top"),
      ("all chunks copied first", "    m, d = -np.inf, 0.0\n",
       "    m, d = -np.inf, 0.0\n    chunks = [np.concatenate([x.copy() for x in chunks], 1)]\n"),
      ("chunks that are all empty", "        new = ", "        if x.size == 0:\n            continue\n        new = "),
      ("exp in fp16", "np.exp(x - shift[:, None]).sum(1)",
       "np.exp(x - shift[:, None]).astype(np.float16).astype(np.float32).sum(1)"),
      ("one largest LSE for all rows", "top = lse.max(0)", "top = np.full(lse.shape[1], lse.max())"),
      ("only NaN removed, not inf", "np.where(weight[:, :, None] > 0, o, 0)", "np.where(np.isnan(o), 0, o)"))
PLANTED["chunks kept, not copied"] = ("6.2", "# EXERCISE 6.2\n" + PIECES.replace(
    "    m, d = -np.inf, 0.0\n", "    chunks = [np.concatenate(list(chunks), 1)]\n    m, d = -np.inf, 0.0\n"))

PICK = '''@triton.jit
def pick_kernel(x_ptr, allowed_ptr, best_ptr, logp_ptr, cols, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    d = tl.zeros((BLOCK,), tl.float32)
    best = tl.full((BLOCK,), 0, tl.int32)
    for start in range(0, cols, BLOCK):
        col = start + offs
        ok = tl.load(allowed_ptr + row * cols + col, mask=col < cols, other=0) != 0
        x = tl.load(x_ptr + row * stride + col, mask=ok, other=float("-inf")).to(tl.float32)
        best = tl.where(x > m, col, best)
        new = tl.maximum(m, x)
        shift = tl.where(new == float("-inf"), 0.0, new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = new
    top = tl.max(m, 0)
    found = top > float("-inf")
    total = tl.sum(d * tl.exp(m - tl.where(found, top, 0.0)), 0)
    first = tl.min(tl.where(m == top, best, cols), 0)
    tl.store(best_ptr + row, tl.where(found, first, -1))
    tl.store(logp_ptr + row, tl.where(found, -tl.log(tl.where(found, total, 1.0)), float("-inf")))
'''

plant("6.3", PICK,
      ("lanes not rescaled", "d = d * tl.exp(m - shift) +", "d = d +"),
      ("lanes merged without rescale", "tl.sum(d * tl.exp(m - tl.where(found, top, 0.0)), 0)", "tl.sum(d, 0)"),
      ("maximum set too early", "new = tl.maximum(m, x)", "new = tl.maximum(m, x)\n        m = new"),
      ("kernel drops the tail", "range(0, cols, BLOCK)", "range(0, cols // BLOCK * BLOCK, BLOCK)"),
      ("tail counts as 0", 'mask=ok, other=float("-inf")', "mask=ok, other=0.0"),
      ("a forbidden word wins", "mask=ok, other", "mask=col < cols, other"),
      ("the rightmost of equal ones", "tl.where(x > m, col, best)", "tl.where(x >= m, col, best)"),
      ("the lane instead of the column", "tl.where(x > m, col, best)", "tl.where(x > m, offs, best)"),
      ("first lane, not first column", "tl.min(tl.where(m == top, best, cols), 0)",
       "tl.sum(tl.where(offs == tl.argmax(m, 0), best, 0), 0)"),
      ("stride of x ignored", "row * stride", "row * cols"),
      ("stride of x for allowed", "row * cols", "row * stride"),
      ("lanes begin with −inf − (−inf)", 'shift = tl.where(new == float("-inf"), 0.0, new)', "shift = new"),
      ("column 0 where nothing is allowed", "tl.where(found, first, -1)", "tl.where(found, first, 0)"),
      ("log-probability without sign", "tl.where(found, -tl.log(", "tl.where(found, tl.log("),
      ("LSE instead of the log-probability", "tl.where(found, -tl.log(", "tl.where(found, top + tl.log("),
      ("fp16 in the kernel", 'other=float("-inf")).to(tl.float32)',
       'other=float("-inf")).to(tl.float16).to(tl.float32)'),
      ("words loaded, then masked", 'tl.load(x_ptr + row * stride + col, mask=ok, other=float("-inf")).to(tl.float32)',
       'tl.where(ok, tl.load(x_ptr + row * stride + col).to(tl.float32), float("-inf"))'),
      ("allowed loaded, then masked", "tl.load(allowed_ptr + row * cols + col, mask=col < cols, other=0) != 0",
       "(tl.load(allowed_ptr + row * cols + col) != 0) & (col < cols)"))
NOTHING, MIN = 'float("-inf")', "-3.4028234663852886e38"
for name, low in (("−10 000", "-1e4"), ("−1e9", "-1e9"), ("the lowest fp32", MIN)):
    PLANTED[f"lanes begin with {name}"] = ("6.3", "# EXERCISE 6.3\n" + PICK.replace(
        f"tl.full((BLOCK,), {NOTHING}", f"tl.full((BLOCK,), {low}").replace(
        f"found = top > {NOTHING}", f"found = top > {low}"))
PLANTED["each logit read twice"] = ("6.3", """# EXERCISE 6.3
@triton.jit
def pick_kernel(x_ptr, allowed_ptr, best_ptr, logp_ptr, cols, stride, BLOCK: tl.constexpr):
    row, offs, top = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK), float("-inf")
    for start in range(0, cols, BLOCK):
        ok = tl.load(allowed_ptr + row * cols + start + offs, mask=start + offs < cols, other=0) != 0
        x = tl.load(x_ptr + row * stride + start + offs, mask=ok, other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, tl.max(x, 0))
    found = top > float("-inf")
    total, first = 0.0, cols
    for start in range(0, cols, BLOCK):
        ok = tl.load(allowed_ptr + row * cols + start + offs, mask=start + offs < cols, other=0) != 0
        x = tl.load(x_ptr + row * stride + start + offs, mask=ok, other=float("-inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - tl.where(found, top, 0.0)), 0)
        first = tl.minimum(first, tl.min(tl.where(ok & (x == top), start + offs, cols), 0))
    tl.store(best_ptr + row, tl.where(found, first, -1))
    tl.store(logp_ptr + row, tl.where(found, -tl.log(tl.where(found, total, 1.0)), float("-inf")))
""")
PLANTED["a row in one block of 8192"] = ("6.3", """# EXERCISE 6.3
@triton.jit
def pick_kernel(x_ptr, allowed_ptr, best_ptr, logp_ptr, cols, stride, BLOCK: tl.constexpr):
    row, col = tl.program_id(0).to(tl.int64), tl.arange(0, 8192)
    ok = tl.load(allowed_ptr + row * cols + col, mask=col < cols, other=0) != 0
    x = tl.load(x_ptr + row * stride + col, mask=ok, other=float("-inf")).to(tl.float32)
    top = tl.max(x, 0)
    found = top > float("-inf")
    total = tl.sum(tl.exp(x - tl.where(found, top, 0.0)), 0)
    tl.store(best_ptr + row, tl.where(found, tl.min(tl.where(x == top, col, cols), 0), -1))
    tl.store(logp_ptr + row, tl.where(found, -tl.log(tl.where(found, total, 1.0)), float("-inf")))
""")

LENGTHS = '''@triton.jit
def softmax_lengths_kernel(x_ptr, lengths_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    length = tl.load(lengths_ptr + tl.program_id(0))
    offs = tl.arange(0, BLOCK)
    m, d = tl.full((BLOCK,), float("-inf"), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + offs
        x = tl.load(x_ptr + row + col, mask=col < length, other=float("-inf")).to(tl.float32)
        new = tl.maximum(m, x)
        shift = tl.where(new == float("-inf"), 0.0, new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = new
    top = tl.max(m, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(d * tl.exp(m - top), 0)
    scale = 1.0 / tl.where(total == 0.0, 1.0, total)
    for start in range(0, cols, BLOCK):
        col = start + offs
        e = tl.exp(tl.load(x_ptr + row + col, mask=col < length, other=-float("inf")).to(tl.float32) - top)
        tl.store(y_ptr + row + col, e * scale, mask=col < cols)
'''

FILL = 'mask=col < length, other=float("-inf")'
plant("6.4", LENGTHS,
      ("filled with −10 000", FILL, "mask=col < length, other=-1e4"),
      ("filled with the lowest fp16", FILL, "mask=col < length, other=-65504.0"),
      ("filled with −1e9", FILL, "mask=col < length, other=-1e9"),
      ("filled with the lowest fp32", FILL, "mask=col < length, other=-3.4028234e38"),
      ("filled with 0", FILL, "mask=col < length, other=0.0"),
      ("masked by columns", FILL, 'mask=col < cols, other=float("-inf")'),
      ("guard taken out", 'shift = tl.where(new == float("-inf"), 0.0, new)', "shift = new"),
      ("nothing stored behind the length", "e * scale, mask=col < cols)", "e * scale, mask=col < length)"),
      ("scores loaded, then masked", f"tl.load(x_ptr + row + col, {FILL}).to(tl.float32)",
       'tl.where(col < length, tl.load(x_ptr + row + col).to(tl.float32), float("-inf"))'))
PLANTED["scores clamped instead"] = ("6.4", "# EXERCISE 6.4\n" + LENGTHS.replace(
    FILL, "mask=col < length, other=-1e4").replace(
    "        new = tl.maximum(m, x)\n", "        x = tl.maximum(x, -9999.0)\n        new = tl.maximum(m, x)\n"))

LOSS = '''def smooth_loss(x, target, eps, z):
    rows, keep = np.arange(len(x)), target != -100
    t = np.where(keep, target, 0)
    m = x.max(1)
    e = np.exp(x - m[:, None])
    d = e.sum(1)
    lse = m + np.log(d)
    loss = lse - (1 - eps) * x[rows, t] - eps * x.mean(1) + z * lse**2
    grad = e / d[:, None] * (1 + 2 * z * lse)[:, None] - eps / x.shape[1]
    grad[rows, t] -= 1 - eps
    return loss * keep, grad * keep[:, None]
'''

plant("6.5", LOSS,
      ("exp without the maximum", "m = x.max(1)", "m = np.zeros(len(x))"),
      ("ε summed, not averaged", "eps * x.mean(1)", "eps * x.sum(1)"),
      ("ε on top of the target's 1", "(1 - eps) * x[rows, t]", "x[rows, t]"),
      ("z-loss of the LSE without square", "z * lse**2", "z * lse"),
      ("z-loss of log d", "z * lse**2", "z * np.log(d)**2"),
      ("ε for the other classes only", "- eps / x.shape[1]", "- eps / (x.shape[1] - 1)"),
      ("no gradient of ε", "- eps / x.shape[1]", "- 0"),
      ("no gradient of the z-loss", "* (1 + 2 * z * lse)[:, None]", ""),
      ("a 2 forgotten", "2 * z * lse", "z * lse"),
      ("onehot in full", "-= 1 - eps", "-= 1"),
      ("ignored rows have a loss", "return loss * keep,", "return loss,"),
      ("ignored rows have a gradient", "grad * keep[:, None]", "grad"),
      ("gradient of the mean", "grad * keep[:, None]", "grad * keep[:, None] / keep.sum()"),
      ("one maximum for the batch", "m = x.max(1)", "m = np.full(len(x), x.max())"),
      ("maximum of the first row for all", "m = x.max(1)", "m = np.full(len(x), x[0].max())"),
      ("the mean instead of the maximum", "m = x.max(1)", "m = x.mean(1)"),
      ("the first column instead of the maximum", "m = x.max(1)", "m = x[:, 0]"),
      ("the minimum instead of the maximum", "m = x.max(1)", "m = x.min(1)"))

READ = '''def share(elements, item, us, copy):
    return 2 * elements * item / (us * 1e-6) / copy

def cliff(cols, shares):
    order = np.argsort(cols)
    cols, shares = cols[order], shares[order]
    return int(cols[1 + np.argmax(shares[:-1] / shares[1:])])

def from_l2(elements, item, us, copy):
    trips = copy * us * 1e-6 / (elements * item)
    return np.where(trips < 2, -1.0, np.maximum(3 - trips, 0))
'''

plant("6.6", READ,
      ("all trips counted", "2 * elements * item / (us", "3 * elements * item / (us"),
      ("milliseconds", "(us * 1e-6) / copy", "(us * 1e-3) / copy"),
      ("the width before the cliff", "cols[1 + np.argmax", "cols[np.argmax"),
      ("widths not sorted", "np.argsort(cols)", "np.arange(len(cols))"),
      ("the lowest share", "cols[1 + np.argmax(shares[:-1] / shares[1:])]", "cols[np.argmin(shares)]"),
      ("the difference, not the factor", "shares[:-1] / shares[1:]", "shares[:-1] - shares[1:]"),
      ("a step up is a cliff", "shares[:-1] / shares[1:]", "np.abs(np.log(shares[:-1] / shares[1:]))"),
      ("the factor a width", "shares[:-1] / shares[1:]", "shares[:-1] / shares[1:] / (cols[1:] / cols[:-1])"),
      ("down from the best so far", "shares[:-1] / shares[1:]", "np.maximum.accumulate(shares)[:-1] / shares[1:]"),
      ("a share ends at 1", "return 2 * elements * item / (us * 1e-6) / copy",
       "return np.minimum(1, 2 * elements * item / (us * 1e-6) / copy)"),
      ("more help than none", "np.maximum(3 - trips, 0)", "3 - trips"),
      ("part of all trips", "np.maximum(3 - trips, 0)", "np.maximum(3 - trips, 0) / 3"),
      ("impossible times explained by the L2", "np.where(trips < 2, -1.0, np.maximum(3 - trips, 0))",
       "np.clip(3 - trips, 0, 1)"))

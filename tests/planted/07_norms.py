"""Wrong answers to lab 07 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


COUNT = '''def gain(rows, cols, item, bandwidth, launch):
    tensor, gamma = rows * cols * item, cols * item
    kernels = (3 * tensor, 2 * tensor + gamma, 4 * tensor + gamma)
    add, norm, fused = [max(launch, moved / bandwidth) for moved in kernels]
    return 1e6 * (add + norm), 1e6 * fused

def backward_bytes(rows, cols, item, resident, step):
    programs = min(resident, -(-rows // step))
    first = 3 * rows * cols * item + cols * item + 4 * rows + 4 * programs * cols
    return programs, first + 4 * programs * cols + cols * item

def most_partials(rows, cols, item, part):
    return 3 * rows * cols * item // (2 * 4 * cols * part)
'''

plant("7.1", COUNT,
      ("fused kernel reads h back", "4 * tensor + gamma", "5 * tensor + gamma"),
      ("one launch for two kernels", "1e6 * (add + norm)", "1e6 * max(launch, sum(kernels[:2]) / bandwidth)"),
      ("partial rows never read", "first + 4 * programs * cols", "first"),
      ("partial rows of narrow numbers", "4 * rows + 4 * programs * cols", "4 * rows + item * programs * cols"),
      ("statistics not counted", "cols * item + 4 * rows +", "cols * item +"),
      ("programs without rows", "min(resident, -(-rows // step))", "resident"),
      ("last rows without a program", "-(-rows // step)", "rows // step"),
      ("partials counted once", "2 * 4 * cols", "4 * cols"),
      ("last rows rounded away", "-(-rows // step)", "round(rows / step)"),
      ("small tensors counted with the three", "return 3 * rows * cols * item //",
       "return (3 * rows * cols * item + cols * item + 4 * rows) //"),
      ("never more than 512 partial rows", "return 3 * rows * cols * item // (2 * 4 * cols * part)",
       "return min(512, 3 * rows * cols * item // (2 * 4 * cols * part))"))

PIECES = '''def stream(chunks):
    n, mean, m2 = 0, 0.0, 0.0
    for x in chunks:
        width = x.shape[1]
        if width == 0:
            continue
        mean_b = x.mean(1)
        m2_b = ((x - mean_b[:, None]) ** 2).sum(1)
        delta, share = mean_b - mean, width / (n + width)
        mean = mean + delta * share
        m2 = m2 + m2_b + delta**2 * n * share
        n += width
    return mean, m2 / n

def gather(n, mean, m2):
    there = n > 0
    n, mean, m2 = n[there, None], mean[there], m2[there]
    whole = (n * mean).sum(0) / n.sum()
    return whole, (m2 + n * (mean - whole) ** 2).sum(0) / n.sum()
'''

plant("7.2", PIECES,
      ("chunks weigh the same", "width / (n + width)", "0.5 if n else 1.0"),
      ("means of chunks not in M2", "m2 + m2_b + delta**2 * n * share", "m2 + m2_b"),
      ("empty chunk has a mean", "if width == 0:", "if width < 0:"),
      ("variance of a sample", "return mean, m2 / n", "return mean, m2 / (n - 1)"),
      ("mean of means", "(n * mean).sum(0) / n.sum()", "mean.mean(0)"),
      ("mean of variances", "(m2 + n * (mean - whole) ** 2)", "m2"),
      ("difference of squares", "(m2 + n * (mean - whole) ** 2).sum(0) / n.sum()",
       "(m2 + n * mean**2).sum(0) / n.sum() - whole**2"),
      ("nothing times NaN", "there = n > 0", "there = n >= 0"),
      ("a part without NaN counts", "there = n > 0", "there = ~np.isnan(mean).any(1)"),
      ("all chunks copied first", "    n, mean, m2 = 0, 0.0, 0.0\n",
       "    n, mean, m2 = 0, 0.0, 0.0\n    chunks = [np.concatenate([x.copy() for x in chunks], 1)]\n"))
PLANTED["one pass of squares"] = ("7.2", "# EXERCISE 7.2\n" + PIECES[PIECES.index("def gather"):] + '''
def stream(chunks):
    n, total, squares = 0, 0.0, 0.0
    for x in chunks:
        n, total, squares = n + x.shape[1], total + x.sum(1), squares + (x * x).sum(1)
    return total / n, squares / n - (total / n) ** 2
''')
PLANTED["one pivot for all rows"] = ("7.2", "# EXERCISE 7.2\n" + PIECES[PIECES.index("def gather"):] + '''
def stream(chunks):
    n, pivot, total, squares = 0, None, 0.0, 0.0
    for x in chunks:
        if x.shape[1]:
            pivot = x[0, 0].copy() if pivot is None else pivot
            d = x - pivot
            n, total, squares = n + x.shape[1], total + d.sum(1), squares + (d * d).sum(1)
    return pivot + total / n, squares / n - (total / n) ** 2
''')

GROUPS = '''@triton.jit
def group_norm_kernel(x_ptr, gamma_ptr, beta_ptr, y_ptr, channels, length, stride, eps, BLOCK: tl.constexpr):
    b, g = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    size, lane = channels * length, tl.arange(0, BLOCK)
    x_ptr += b * stride + g * size
    y_ptr += (b * tl.num_programs(1) + g) * size
    mean, m2 = 0.0, 0.0
    for start in range(0, size, BLOCK):
        inside = start + lane < size
        x = tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        count = tl.minimum(size - start, BLOCK)
        mean_b = tl.sum(x) / count
        centred = tl.where(inside, x - mean_b, 0.0)
        delta, share = mean_b - mean, count / (start + count)
        mean += delta * share
        m2 += tl.sum(centred * centred) + delta * delta * start * share
    rstd = tl.rsqrt(m2 / size + eps)
    for start in range(0, size, BLOCK):
        i = start + lane
        x = tl.load(x_ptr + i, mask=i < size, other=0.0).to(tl.float32)
        channel = g * channels + i // length
        gamma = tl.load(gamma_ptr + channel, mask=i < size, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + channel, mask=i < size, other=0.0).to(tl.float32)
        tl.store(y_ptr + i, (x - mean) * rstd * gamma + beta, mask=i < size)
'''

plant("7.3", GROUPS,
      ("blocks' means not in M2", "+ delta * delta * start * share", ""),
      ("last block counts as a whole one", "tl.minimum(size - start, BLOCK)", "BLOCK"),
      ("padded lanes in the variance", "tl.where(inside, x - mean_b, 0.0)", "x - mean_b"),
      ("gamma by the number of the group", "g * channels + i // length", "g + i // length"),
      ("pictures without gaps", "b * stride + g * size", "(b * tl.num_programs(1) + g) * size"),
      ("eps outside the root", "tl.rsqrt(m2 / size + eps)", "1.0 / (tl.sqrt(m2 / size) + eps)"),
      ("first read loaded, then masked", "tl.load(x_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)",
       "tl.where(inside, tl.load(x_ptr + start + lane).to(tl.float32), 0.0)"),
      ("second read without a mask", "tl.load(x_ptr + i, mask=i < size, other=0.0)", "tl.load(x_ptr + i)"),
      ("gamma without a mask", "tl.load(gamma_ptr + channel, mask=i < size, other=0.0)",
       "tl.load(gamma_ptr + channel)"),
      ("a read of its own for the mean", "    rstd = tl.rsqrt(m2 / size + eps)\n", """    mean = 0.0
    for start in range(0, size, BLOCK):
        mean += tl.sum(tl.load(x_ptr + start + lane, mask=start + lane < size, other=0.0).to(tl.float32)) / size
    rstd = tl.rsqrt(m2 / size + eps)
"""))
PLANTED["a group in one block of 4096"] = ("7.3", """# EXERCISE 7.3
@triton.jit
def group_norm_kernel(x_ptr, gamma_ptr, beta_ptr, y_ptr, channels, length, stride, eps, BLOCK: tl.constexpr):
    b, g = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    size, i = channels * length, tl.arange(0, 4096)
    x = tl.load(x_ptr + b * stride + g * size + i, mask=i < size, other=0.0).to(tl.float32)
    centred = tl.where(i < size, x - tl.sum(x) / size, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred) / size + eps)
    channel = g * channels + i // length
    gamma = tl.load(gamma_ptr + channel, mask=i < size, other=0.0).to(tl.float32)
    beta = tl.load(beta_ptr + channel, mask=i < size, other=0.0).to(tl.float32)
    tl.store(y_ptr + (b * tl.num_programs(1) + g) * size + i, centred * rstd * gamma + beta, mask=i < size)
""")
PLANTED["one pass of squares in a kernel"] = ("7.3", "# EXERCISE 7.3\n" + GROUPS.replace(
    "mean += delta * share\n", "mean += tl.sum(x) / size\n").replace(
    "m2 += tl.sum(centred * centred) + delta * delta * start * share", "m2 += tl.sum(x * x)").replace(
    "tl.rsqrt(m2 / size + eps)", "tl.rsqrt(m2 / size - mean * mean + eps)"))

STANDARD = '''@triton.jit
def standardise_kernel(x_ptr, y_ptr, cols, eps, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64) * cols, tl.arange(0, BLOCK)
    pivot = tl.load(x_ptr + row).to(tl.float32)
    distances, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        x = tl.load(x_ptr + row + col, mask=col < cols, other=pivot).to(tl.float32)
        d = x - pivot
        distances += d
        squares += d * d
    shift = tl.sum(distances) / cols
    rstd = tl.rsqrt(tl.sum(squares) / cols - shift * shift + eps)
    for start in range(0, cols, BLOCK):
        col = start + lane
        x = tl.load(x_ptr + row + col, mask=col < cols, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + col, (x - pivot - shift) * rstd, mask=col < cols)
'''

plant("7.4", STANDARD,
      ("as it was", "other=pivot", "other=0.0"),
      ("pivot taken out", "pivot = tl.load(x_ptr + row).to(tl.float32)", "pivot = 0.0"),
      ("divided by whole blocks", "tl.sum(squares) / cols", "tl.sum(squares) / (tl.cdiv(cols, BLOCK) * BLOCK)"),
      ("squares masked, distances not", "        d = x - pivot\n        distances += d\n",
       "        distances += tl.where(col < cols, x, 0.0) - pivot\n        d = x - pivot\n"),
      ("zeros do not count", "d = x - pivot\n", "d = tl.where(x != 0.0, x - pivot, 0.0)\n"),
      ("one pivot for all rows of x", "pivot = tl.load(x_ptr + row)", "pivot = tl.load(x_ptr)"),
      ("eps forgotten", " - shift * shift + eps)", " - shift * shift)"),
      ("row loaded without a mask", "x = tl.load(x_ptr + row + col, mask=col < cols, other=pivot).to(tl.float32)\n",
       "x = tl.where(col < cols, tl.load(x_ptr + row + col).to(tl.float32), pivot)\n"))
PLANTED["lanes past the end taken off the sums"] = ("7.4", "# EXERCISE 7.4\n" + STANDARD.replace(
    "other=pivot", "other=0.0").replace(
    "shift = tl.sum(distances) / cols",
    "pad = tl.cdiv(cols, BLOCK) * BLOCK - cols\n    shift = (tl.sum(distances) + pad * pivot) / cols").replace(
    "tl.sum(squares) / cols", "(tl.sum(squares) - pad * pivot * pivot) / cols"))

BACK = '''def add_norm_grad(dy, dh, y, gamma, rstd):
    x_hat, g = y / gamma, dy * gamma
    dx = dh + rstd[:, None] * (g - x_hat * (g * x_hat).mean(1, keepdims=True))
    return dx, dx, (dy * x_hat).sum(0)

def in_order(rows):
    total = np.float32(0)
    for row in rows:
        total = total + row
    return total

def strided_sum(terms, programs):
    return in_order(in_order(terms[p::programs]) for p in range(programs))

def chunked_sum(terms, chunk):
    return in_order(in_order(terms[i:i + chunk]) for i in range(0, len(terms), chunk))
'''

plant("7.5", BACK,
      ("the way around forgotten", "dx = dh + ", "dx = "),
      ("residual without the norm's gradient", "return dx, dx,", "return dx, dh,"),
      ("y for x̂", "x_hat, g = y / gamma", "x_hat, g = y"),
      ("rstd only scales", "- x_hat * (g * x_hat).mean(1, keepdims=True)", ""),
      ("sum of the row for its mean", ".mean(1, keepdims=True)", ".sum(1, keepdims=True)"),
      ("dγ summed over columns", "(dy * x_hat).sum(0)", "(dy * x_hat).sum(1)"),
      ("double precision on the way", "total = total + row\n    return total",
       "total = total + row.astype(float)\n    return np.float32(1) * np.asarray(total, np.float32)"),
      ("neighbours for strides", "terms[p::programs]",
       "terms[p * -(-len(terms) // programs):(p + 1) * -(-len(terms) // programs)]"),
      ("short piece left out", "range(0, len(terms), chunk)", "range(0, len(terms) - chunk + 1, chunk)"),
      ("last program first", "for p in range(programs)", "for p in reversed(range(programs))"),
      ("a program's rows added by NumPy", "in_order(terms[p::programs])", "terms[p::programs].sum(0)"),
      ("the rows of a chunk added by NumPy", "in_order(terms[i:i + chunk])", "terms[i:i + chunk].sum(0)"))

READ = '''def explain(us, elements, item, copy):
    accesses = us * 1e-6 * copy / (elements * item)
    whole = np.round(accesses)
    fits = (whole >= 2) & (whole <= 6) & (np.abs(accesses - whole) <= 0.05 * whole)
    return accesses, np.where(fits, whole, 0)

def floor_and_bandwidth(rows, us, cols, item):
    slope, floor = np.polyfit(2 * rows * cols * item, us, 1)
    return floor, 1e6 / slope

def rows_for(share, floor, bandwidth, cols, item):
    return int(np.ceil(share / (1 - share) * floor * 1e-6 * bandwidth / (2 * cols * item)))
'''

plant("7.6", READ,
      ("elements for bytes", "(elements * item)", "elements"),
      ("every time explained", "np.where(fits, whole, 0)", "whole"),
      ("5 % of one access", "0.05 * whole)", "0.05)"),
      ("less than compulsory", "(whole >= 2) & ", ""),
      ("slope for bandwidth", "1e6 / slope", "slope"),
      ("write forgotten", "np.polyfit(2 * rows", "np.polyfit(rows"),
      ("share of the floor", "share / (1 - share)", "share"),
      ("rows rounded down", "np.ceil(", "np.floor("),
      ("rows rounded to the nearest", "np.ceil(", "np.round("),
      ("5 % of the measured time", "0.05 * whole)", "0.05 * accesses)"),
      ("5.5 %", "0.05 * whole)", "0.055 * whole)"),
      ("4.5 %", "0.05 * whole)", "0.045 * whole)"))

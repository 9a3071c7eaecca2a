"""Wrong answers to lab 03 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


CHAIN = '''def eager(steps, sizes, item):
    moved = sum(sizes[output] + sum(sizes[name] for name in set(inputs)) for output, inputs in steps)
    return len(steps), moved * item

def fused(steps, sizes, keep, item):
    made = [output for output, inputs in steps]
    read = {name for output, inputs in steps for name in inputs if name not in made}
    return item * (sum(sizes[name] for name in read) + sum(sizes[name] for name in keep))

def chain_us(steps, sizes, keep, item, launch_us, bandwidth):
    kernels = [eager([step], sizes, item)[1] for step in steps]
    apart = sum(max(launch_us, 1e6 * moved / bandwidth) for moved in kernels)
    return apart, max(launch_us, fused(steps, sizes, keep, item) / bandwidth * 1e6)

def least_rows(cols, full, vectors, item, launch_us, bandwidth):
    need = launch_us / 1e6 * bandwidth - vectors * cols * item
    return max(1, int(np.ceil(need / (full * cols * item))))
'''

plant("3.1", CHAIN,
      ("the same tensor read twice by a step", "for name in set(inputs))", "for name in inputs)"),
      ("outputs not counted", "sum(sizes[output] + sum(", "sum(0 + sum("),
      ("elements instead of bytes", "moved * item", "moved"),
      ("vectors taken for matrices", "sum(sizes[name] for name in read)", "len(read) * max(sizes.values())"),
      ("fused reads what it has made", " if name not in made}", "}"),
      ("fused keeps the last output only", "sum(sizes[name] for name in keep)", "sizes[made[-1]]"),
      ("vectors read again by each step of the fused kernel",
       "read = {name for output, inputs in steps for name in inputs if name not in made}",
       "read = [name for output, inputs in steps for name in inputs if name not in made]"),
      ("longest of the sums instead of sum of the longest",
       "apart = sum(max(launch_us, 1e6 * moved / bandwidth) for moved in kernels)",
       "apart = max(len(steps) * launch_us, 1e6 * sum(kernels) / bandwidth)"),
      ("launch added to the bytes' time", "max(launch_us, fused(steps, sizes, keep, item) / bandwidth * 1e6)",
       "launch_us + fused(steps, sizes, keep, item) / bandwidth * 1e6"),
      ("rows rounded down", "int(np.ceil(need", "int(np.floor(need"),
      ("µs taken for ms", "launch_us / 1e6 * bandwidth", "launch_us / 1e3 * bandwidth"),
      ("vectors for each row", "launch_us / 1e6 * bandwidth - vectors * cols * item",
       "launch_us / 1e6 * bandwidth / (1 + vectors / full)"),
      ("fewer than one row", "max(1, int(np.ceil(need / (full * cols * item))))",
       "int(np.ceil(need / (full * cols * item)))"),
      ("fused writes what nobody reads, too", "sum(sizes[name] for name in keep)",
       "sum(sizes[name] for name in made if name in keep or all(name not in inputs for _, inputs in steps))"),
      ("times from a sum of its own that reads twice", "eager([step], sizes, item)[1] for step in steps",
       "item * sum(sizes[name] for name in (output, *inputs)) for output, inputs in steps"),
      ("times of the last output only", "fused(steps, sizes, keep, item) / bandwidth",
       "fused(steps, sizes, [steps[-1][0]], item) / bandwidth"),
      ("vectors in elements", "vectors * cols * item", "vectors * cols"))

BUDGET = '''def register_budget(chip, num_warps, programs):
    warps = programs * num_warps
    if programs > chip["programs"] or warps > chip["warps"]:
        return 0
    fullest = -(-warps // chip["parts"])
    part = chip["registers"] // chip["parts"]
    warp = part // fullest // chip["portion"] * chip["portion"]
    return min(255, warp // 32)

def shared_budget(chip, programs):
    return max(0, chip["shared"] // programs - chip["reserved"])

def plan(chip, sms, bandwidth, latency_ns, num_warps, tile_bytes):
    need = bandwidth * latency_ns / 1e9 / sms
    programs = int(np.ceil(need / tile_bytes))
    if programs > chip["programs"] or programs * num_warps > chip["warps"]:
        return 0, 0.0, 0
    return programs, programs * num_warps / chip["warps"], register_budget(chip, num_warps, programs)
'''

plant("3.2", BUDGET,
      ("parts of an SM forgotten",
       'warp = part // fullest // chip["portion"]', 'warp = chip["registers"] // warps // chip["portion"]'),
      ("portions forgotten", 'part // fullest // chip["portion"] * chip["portion"]', "part // fullest"),
      ("warps spread unevenly, rounded down", 'fullest = -(-warps // chip["parts"])',
       'fullest = max(1, warps // chip["parts"])'),
      ("registers of a warp, not of a thread", "min(255, warp // 32)", "warp"),
      ("more than 255 registers", "min(255, warp // 32)", "warp // 32"),
      ("places for programs forgotten", 'if programs > chip["programs"] or warps >', "if warps >"),
      ("places for warps forgotten", ' or warps > chip["warps"]:', ":"),
      ("one program's reserve for all", 'chip["shared"] // programs - chip["reserved"]',
       '(chip["shared"] - chip["reserved"]) // programs'),
      ("less than no shared memory", 'max(0, chip["shared"] // programs - chip["reserved"])',
       'chip["shared"] // programs - chip["reserved"]'),
      ("one SM feeds the whole memory", "latency_ns / 1e9 / sms", "latency_ns / 1e9"),
      ("programs rounded down", "int(np.ceil(need / tile_bytes))", "max(1, int(need / tile_bytes))"),
      ("occupancy of programs, not of warps", 'programs * num_warps / chip["warps"], register',
       'programs / chip["programs"], register'),
      ("no budget with all places for programs taken", 'if programs > chip["programs"] or warps >',
       'if programs >= chip["programs"] or warps >'),
      ("no budget with all places for warps taken", 'or warps > chip["warps"]:', 'or warps >= chip["warps"]:'),
      ("no plan with all places for programs taken", 'if programs > chip["programs"] or programs *',
       'if programs >= chip["programs"] or programs *'),
      ("no plan with all places for warps taken", 'programs * num_warps > chip["warps"]:',
       'programs * num_warps >= chip["warps"]:'),
      ("a plan without regard to warps", ' or programs * num_warps > chip["warps"]:', ":"),
      ("portions of 256 always", 'part // fullest // chip["portion"] * chip["portion"]',
       "part // fullest // 256 * 256"))
PLANTED["four parts always"] = ("3.2", "# EXERCISE 3.2\n" + BUDGET.replace('chip["parts"]', "4"))

WATCH = '''def clocks(script):
    python, gpu, idle, kernels = 0.0, 0.0, 0.0, 0
    for what, *us in script:
        if what == "sync":
            python = max(python, gpu)
        else:
            python += us[0]
        if what == "launch":
            begin = max(python, gpu)
            if kernels:
                idle += begin - gpu
            gpu = begin + us[1]
            kernels += 1
    return python, gpu, idle

def readings(launch, kernel, compile, backlog, n):
    ready = compile + launch
    first = max(ready, backlog) + kernel
    behind = max(ready + launch, first) + kernel
    warm = launch + kernel
    row = launch + (n - 1) * max(launch, kernel) + kernel
    return ready, first, behind - ready, warm, row / n, (first + (n - 1) * warm) / n, warm
'''

plant("3.3", WATCH,
      ("a launch waits for its kernel", "gpu = begin + us[1]\n", "gpu = python = begin + us[1]\n"),
      ("kernel begins with the call", "begin = max(python, gpu)", "begin = max(python - us[0], gpu)"),
      ("kernels do not wait for each other", "begin = max(python, gpu)", "begin = python"),
      ("sync sets the clock back", "python = max(python, gpu)", "python = gpu"),
      ("idle before the first kernel counted", "if kernels:", "if True:"),
      ("compile forgotten without a synchronise", "return ready, first,", "return launch, first,"),
      ("backlog added to the compile time", "max(ready, backlog) + kernel", "ready + backlog + kernel"),
      ("backlog forgotten", "first = max(ready, backlog) + kernel", "first = ready + kernel"),
      ("first kernel forgotten in C", "behind = max(ready + launch, first) + kernel",
       "behind = ready + launch + kernel"),
      ("call without a wait forgotten in C", "behind = max(ready + launch, first) + kernel", "behind = first + kernel"),
      ("launch and kernel one after the other in a row", "launch + (n - 1) * max(launch, kernel) + kernel",
       "n * (launch + kernel)"),
      ("first launch of a row forgotten", "row = launch + (n - 1)", "row = (n - 1)"),
      ("mean without the first sample", "(first + (n - 1) * warm) / n", "warm"),
      ("median like the mean", "(first + (n - 1) * warm) / n, warm", "(first + (n - 1) * warm) / n, first"))

TRACE = '''def gaps(kernels):
    found, latest = [], kernels[:, 0].min()
    for start, duration in kernels[np.argsort(kernels[:, 0])]:
        if start > latest:
            found.append((latest, start))
        latest = max(latest, start + duration)
    return found

def gpu(kernels):
    idle = sum(end - start for start, end in gaps(kernels))
    extent = (kernels[:, 0] + kernels[:, 1]).max() - kernels[:, 0].min()
    return extent - idle, idle / extent

def blame(kernels, ranges):
    idle = np.zeros(len(ranges))
    for i, (begin, duration) in enumerate(ranges):
        for start, end in gaps(kernels):
            idle[i] += max(0.0, min(begin + duration, end) - max(begin, start))
    return idle
'''

plant("3.4", TRACE,
      ("not sorted", "in kernels[np.argsort(kernels[:, 0])]:", "in kernels:"),
      ("end of the previous kernel", "latest = max(latest, start + duration)", "latest = start + duration"),
      ("extent from 0 on", ".max() - kernels[:, 0].min()", ".max()"),
      ("end of the last row", "(kernels[:, 0] + kernels[:, 1]).max()", "kernels[-1].sum()"),
      ("idle by the work", "idle / extent\n", "idle / (extent - idle)\n"),
      ("overlapping kernels counted twice", "return extent - idle,", "return kernels[:, 1].sum(),"),
      ("whole gap to the range in which it begins", "max(0.0, min(begin + duration, end) - max(begin, start))",
       "(end - start) * (begin <= start < begin + duration)"),
      ("overlap below zero", "max(0.0, min(begin + duration, end) - max(begin, start))",
       "min(begin + duration, end) - max(begin, start)"),
      ("duration taken for an end", "min(begin + duration, end)", "min(duration, end)"),
      ("idle time before the first kernel blamed",
       "found, latest = [], kernels[:, 0].min()", "found, latest = [], 0.0"),
      ("gaps of less than a µs left out", "if start > latest:", "if start - latest >= 1:"),
      ("end of the kernel that starts last", "(kernels[:, 0] + kernels[:, 1]).max()",
       "kernels[kernels[:, 0].argmax()].sum()"))

PLANTED["an element for each whole µs"] = ("3.4", '''# EXERCISE 3.4
def at_work(kernels, ranges):
    busy = np.zeros(int(max(kernels.sum(1).max(), ranges.sum(1).max())) + 1, dtype=bool)
    for start, duration in kernels:
        busy[int(start):int(start + duration)] = True
    return busy, slice(int(kernels[:, 0].min()), int(kernels.sum(1).max()))

def gpu(kernels):
    busy, extent = at_work(kernels, kernels)
    return busy[extent].sum(), 1 - busy[extent].mean()

def blame(kernels, ranges):
    busy, extent = at_work(kernels, ranges)
    idle = np.zeros(len(busy), dtype=bool)
    idle[extent] = ~busy[extent]
    return np.array([idle[int(start):int(start + duration)].sum() for start, duration in ranges])
''')

SOFTCAP = '''@triton.jit
def softcap_kernel(x_ptr, b_ptr, g_ptr, r_ptr, y_ptr, rows, cols, stride_xm, stride_rm, cap,
                   ROWS: tl.constexpr, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask_m, mask_n = offs_m < rows, offs_n < cols
    mask = mask_m[:, None] & mask_n[None, :]
    b = tl.load(b_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]
    g = tl.load(g_ptr + offs_m, mask=mask_m, other=0.0).to(tl.float32)[:, None]
    x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + offs_m[:, None] * stride_rm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
    u = (x + b) / cap
    y = r + g * cap * (2.0 * tl.sigmoid(2.0 * u) - 1.0)
    tl.store(y_ptr + offs_m[:, None] * cols + offs_n[None, :], y, mask=mask)
'''

plant("3.5", SOFTCAP,
      ("bias by row, gate by column",
       "b = tl.load(b_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]\n"
       "    g = tl.load(g_ptr + offs_m, mask=mask_m, other=0.0).to(tl.float32)[:, None]",
       "b = tl.load(b_ptr + offs_m, mask=mask_m, other=0.0).to(tl.float32)[:, None]\n"
       "    g = tl.load(g_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]"),
      ("gate of the first row for the whole tile",
       "tl.load(g_ptr + offs_m, mask=mask_m, other=0.0).to(tl.float32)[:, None]",
       "tl.load(g_ptr + tl.program_id(0) * ROWS).to(tl.float32)"),
      ("rows of x without gaps", "offs_m[:, None] * stride_xm", "offs_m[:, None] * cols"),
      ("stride of x for the residual", "offs_m[:, None] * stride_rm", "offs_m[:, None] * stride_xm"),
      ("y with the stride of x", "tl.store(y_ptr + offs_m[:, None] * cols",
       "tl.store(y_ptr + offs_m[:, None] * stride_xm"),
      ("tail of the rows not masked", "mask = mask_m[:, None] & mask_n[None, :]",
       "mask = (mask_m[:, None] | True) & mask_n[None, :]"),
      ("tail of the columns not masked", "mask = mask_m[:, None] & mask_n[None, :]",
       "mask = mask_m[:, None] & (mask_n[None, :] | True)"),
      ("tail of the columns left out", "mask_m, mask_n = offs_m < rows, offs_n < cols",
       "mask_m, mask_n = offs_m < rows, offs_n < cols // BLOCK * BLOCK"),
      ("x read past its end", "x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0",
       "x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :]"),
      ("b read past its end", "b_ptr + offs_n, mask=mask_n, other=0.0", "b_ptr + offs_n"),
      ("g read past its end", "g_ptr + offs_m, mask=mask_m, other=0.0", "g_ptr + offs_m"),
      ("tanh by its definition", "(2.0 * tl.sigmoid(2.0 * u) - 1.0)",
       "((tl.exp(u) - tl.exp(-u)) / (tl.exp(u) + tl.exp(-u)))"),
      ("sigmoid(u) for tanh", "2.0 * tl.sigmoid(2.0 * u) - 1.0", "2.0 * tl.sigmoid(u) - 1.0"),
      ("not divided by cap", "u = (x + b) / cap", "u = x + b"),
      ("bias added behind the cap", "u = (x + b) / cap\n    y = r + g", "u = x / cap\n    y = r + b + g"),
      ("residual behind the gate", "y = r + g * cap * (2.0 * tl.sigmoid(2.0 * u) - 1.0)",
       "y = g * (r + cap * (2.0 * tl.sigmoid(2.0 * u) - 1.0))"))

PLANTED["arithmetic in fp16"] = ("3.5", "# EXERCISE 3.5\n" + SOFTCAP.replace(".to(tl.float32)", ""))

RELU2 = '''@triton.jit
def bias_relu2_kernel(x_ptr, bias_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    mask = offs < n
    offs_n = offs % cols
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offs_n, mask=mask & (offs_n < cols), other=0.0).to(tl.float32)
    z = tl.maximum(x + bias, 0.0)
    tl.store(y_ptr + offs, (z * z).to(y_ptr.dtype.element_ty), mask=mask)
'''

plant("3.6", RELU2,
      ("no bias in the next row", "offs_n = offs % cols", "offs_n = start % cols + tl.arange(0, BLOCK)"),
      ("bias read past its end",
       "offs_n = offs % cols\n    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)\n"
       "    bias = tl.load(bias_ptr + offs_n, mask=mask & (offs_n < cols), other=0.0)",
       "offs_n = start % cols + tl.arange(0, BLOCK)\n"
       "    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)\n"
       "    bias = tl.load(bias_ptr + offs_n, mask=mask, other=0.0)"),
      ("one wrap only", "offs_n = offs % cols",
       "offs_n = start % cols + tl.arange(0, BLOCK)\n    offs_n = tl.where(offs_n < cols, offs_n, offs_n - cols)"),
      ("bias by row", "offs_n = offs % cols", "offs_n = offs // cols"),
      ("a row begins with a block", "offs_n = offs % cols", "offs_n = tl.arange(0, BLOCK) % cols"),
      ("blocks of 256 always", "tl.program_id(0).to(tl.int64) * BLOCK\n    offs = start + tl.arange(0, BLOCK)\n"
       "    mask = offs < n\n    offs_n = offs % cols",
       "tl.program_id(0).to(tl.int64) * BLOCK\n    offs = start + tl.arange(0, BLOCK)\n    mask = offs < n\n"
       "    offs_n = (tl.program_id(0) * 256 + tl.arange(0, BLOCK)) % cols"),
      ("x read past the end", "x_ptr + offs, mask=mask, other=0.0", "x_ptr + offs"),
      ("tail not masked", "(z * z).to(y_ptr.dtype.element_ty), mask=mask)", "(z * z).to(y_ptr.dtype.element_ty))"))

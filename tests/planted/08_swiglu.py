"""Wrong answers to lab 08 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


COUNT = '''def equal_width(f_plain, multiple):
    return -(-2 * f_plain // (3 * multiple)) * multiple

def block(m, k, f, item, gated, fused):
    weights = (3 if gated else 2) * k * f
    trips = 2 if fused else 8 if gated else 4
    return weights, 2 * m * weights, trips * m * f * item

def gain(m, k, f, item, peak, copy):
    flops, read = 4 * m * k * f, m * k + 2 * k * f
    product = max(flops / peak, (read + 2 * m * f) * item / copy)
    fused = max(flops / peak, (read + m * f) * item / copy)
    return (product + 3 * m * f * item / copy) / fused

def largest_k(least, item, peak, copy):
    return int(3 * item * peak / (4 * copy * (least - 1)))
'''

plant("8.1", COUNT,
      ("width rounded down", "-(-2 * f_plain // (3 * multiple))", "2 * f_plain // (3 * multiple)"),
      ("two thirds of the width rounded", "-(-2 * f_plain // (3 * multiple))",
       "-(-round(2 * f_plain / 3) // multiple)"),
      ("reading z not counted", "2 if fused else 8 if gated else 4", "1 if fused else 7 if gated else 3"),
      ("FLOPs and bytes one after the other", "fused = max(flops / peak, (read + m * f) * item / copy)",
       "fused = flops / peak + (read + m * f) * item / copy"),
      ("merged product writes half", "(read + 2 * m * f)", "(read + m * f * 1)"),
      ("elements instead of bytes in K", "int(3 * item * peak", "int(3 * peak"))

SHARDS = '''def pack(w, ranks, block):
    K, F = w.shape[0], w.shape[1] // 2
    order = shard_order(F, ranks, block)
    return w[:, order].reshape(K, ranks, 2 * F // ranks).transpose(1, 0, 2)

def unpack(shards, block):
    ranks, K, columns = shards.shape
    order = shard_order(ranks * columns // 2, ranks, block)
    return shards.transpose(1, 0, 2).reshape(K, -1)[:, np.argsort(order)]

def shard_order(F, ranks, block):
    order, f = [], F // ranks
    for first in range(0, F, f):
        for start in range(first, first + f, block):
            gate = range(start, min(start + block, first + f))
            order += [*gate, *(F + column for column in gate)]
    return np.array(order)
'''

plant("8.2", SHARDS,
      ("w cut into equal pieces", "w[:, order].reshape", "w.reshape"),
      ("blocks run across ranks", "for first in range(0, F, f):", "for first, f in [(0, F)]:"),
      ("ranks on no axis of their own", "reshape(K, ranks, 2 * F // ranks).transpose(1, 0, 2)",
       "reshape(ranks, K, 2 * F // ranks)"),
      ("order applied again instead of inverted", "np.argsort(order)", "order"))

BACKWARD = '''@triton.jit
def clamped_backward_kernel(dz_ptr, y_ptr, z_ptr, d_ptr, F, stride_dz, stride_y, alpha, limit, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < F
    y_ptr += row * stride_y + offs
    gate = tl.load(y_ptr, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(y_ptr + F, mask=mask, other=0.0).to(tl.float32)
    dz = tl.load(dz_ptr + row * stride_dz + offs, mask=mask, other=0.0).to(tl.float32)
    g = tl.minimum(gate, limit)
    u = tl.minimum(tl.maximum(up, -limit), limit) + 1.0
    s = 1.0 / (1.0 + tl.exp(-alpha * g))
    act = g * s
    dgate = tl.where(gate <= limit, dz * u * (s + alpha * act * (1.0 - s)), 0.0)
    dup = tl.where(tl.abs(up) <= limit, dz * act, 0.0)
    tl.store(z_ptr + row * F + offs, act * u, mask=mask)
    d_ptr += row * 2 * F + offs
    tl.store(d_ptr, dgate, mask=mask)
    tl.store(d_ptr + F, dup, mask=mask)
'''

plant("8.3", BACKWARD,
      ("alpha missing in the slope", "alpha * act * (1.0 - s)", "act * (1.0 - s)"),
      ("up after the padded width", "y_ptr + F,", "y_ptr + tl.num_programs(1) * BLOCK,"),
      ("rows of dz taken for contiguous", "row * stride_dz", "row * F"),
      ("lanes past F of dz read", "stride_dz + offs, mask=mask, other=0.0)", "stride_dz + offs)"),
      ("slope rounded to the inputs' dtype", "(s + alpha * act * (1.0 - s))",
       "(s + alpha * act * (1.0 - s)).to(dz_ptr.dtype.element_ty)"),
      ("lanes past F of dgate stored", "tl.store(d_ptr, dgate, mask=mask)", "tl.store(d_ptr, dgate)"),
      ("gradient through the clamp", "tl.where(tl.abs(up) <= limit, dz * act, 0.0)", "dz * act"),
      ("no gradient at the limit itself", "gate <= limit", "gate < limit"),
      ("infinity over infinity", "(1.0 - s))", "tl.exp(-alpha * g) / (1.0 + tl.exp(-alpha * g)))"))

GEGLU = '''@triton.jit
def geglu_kernel(y_ptr, z_ptr, n, F, stride, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    mask = offs < n
    row = offs // F
    col = offs - row * F
    gate_ptrs = y_ptr + row * stride + col
    gate = tl.load(gate_ptrs, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_ptrs + F, mask=mask, other=0.0).to(tl.float32)
    u = 0.7978845608 * gate * (1.0 + 0.044715 * gate * gate)
    gelu = gate / (1.0 + tl.exp(-2.0 * u))
    tl.store(z_ptr + offs, gelu * up, mask=mask)
'''

plant("8.4", GEGLU,
      ("lanes past the end of y read", "gate_ptrs + F, mask=mask, other=0.0)", "gate_ptrs + F)"),
      ("one row for the whole block", "row = offs // F", "row = start // F"),
      ("rows masked away", "mask = offs < n\n    row = offs // F", "row = start // F\n    mask = offs < (row + 1) * F"))
PLANTED["column wrapped, row not"] = ("8.4", PLANTED["one row for the whole block"][1].replace(
    "col = offs - row * F", "col = offs % F"))

RESCALE = '''def rescale(x, w_gate, w_up, w_down, limit):
    gate, up = x @ w_gate, x @ w_up
    small = np.exp(-np.abs(gate))
    z = gate * np.where(gate >= 0, 1, small) / (1 + small) * up
    top = np.abs(z).max(0)
    e = np.ceil(np.log2(np.maximum(top, limit) / limit)).astype(int)
    return e, np.ldexp(w_up, -e), np.ldexp(w_down, e[:, None])
'''

plant("8.5", RESCALE,
      ("one more halving at the limit itself", "np.ceil(np.log2(np.maximum(top, limit) / limit))",
       "np.floor(np.log2(np.maximum(top, limit / 2) / limit) + 1)"),
      ("small columns made larger", "np.maximum(top, limit) / limit", "np.maximum(top, 1e-300) / limit"),
      ("largest value, not magnitude", "np.abs(z).max(0)", "z.max(0)"),
      ("w_down made smaller, too", "np.ldexp(w_down, e[:, None])", "np.ldexp(w_down, -e[:, None])"),
      ("one exponent for all columns", "np.abs(z).max(0)", "np.full(z.shape[1], np.abs(z).max())"),
      ("the given arrays changed", "return e, np.ldexp(w_up, -e), np.ldexp(w_down, e[:, None])",
       "w_up *= 2.0 ** -e\n    w_down *= 2.0 ** e[:, None]\n    return e, w_up, w_down"),
      ("ReLU for SiLU", "gate * np.where(gate >= 0, 1, small) / (1 + small)", "np.maximum(gate, 0)"),
      ("gates of the sigmoid clipped at 30", "np.exp(-np.abs(gate))", "np.exp(-np.minimum(np.abs(gate), 30))"),
      ("axis of e guessed from its length", "e[:, None]", "e if len(e) == w_down.shape[1] else e[:, None]"),
      ("infinity over infinity in sigmoid", "np.where(gate >= 0, 1, small) / (1 + small)",
       "np.exp(gate) / (1 + np.exp(gate))"))

READ = '''def arrived(m, f, item, us_library, us_fused, copy):
    return (us_library - us_fused) / (3 * m * f * item / copy * 1e6)

def rates(m, f, k, item, us_library, us_fused, copy):
    flops, pointwise = 4.0 * m * f * k, 3 * m * f * item / copy * 1e6
    return flops / (us_library - pointwise) * 1e6, flops / us_fused * 1e6

def switch(m, us_library, us_fused):
    best = 0
    for i in np.argsort(m)[::-1]:
        if us_fused[i] > us_library[i]:
            break
        best = int(m[i])
    return best
'''

plant("8.6", READ,
      ("part of the whole time", "(3 * m * f * item / copy * 1e6)", "us_library"),
      ("never more than all of it", "(us_library - us_fused) / (3 * m * f * item / copy * 1e6)",
       "np.minimum((us_library - us_fused) / (3 * m * f * item / copy * 1e6), 1)"),
      ("largest M alone does not count", "return best", "return best if best < m.max() else 0"),
      ("silu·mul left in the product's time", "(us_library - pointwise)", "us_library"),
      ("first faster row taken", "break", "continue"),
      ("order of the table trusted", "np.argsort(m)[::-1]", "range(len(m))[::-1]"))

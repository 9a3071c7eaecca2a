"""Wrong answers to lab 02 that its checks must catch: name of the mistake → (exercise, answer cell)."""

from planting import Planted

PLANTED = Planted()
plant = PLANTED.plant


COUNT = '''def run_sectors(first, count, item):
    return ((first + count) * item - 1) // 32 - first * item // 32 + 1

def turned(R, C, block_r, block_c, item):
    read = written = 0
    for r in range(R):
        for c in range(0, C, block_c):
            read += run_sectors(r * C + c, min(block_c, C - c), item)
    for c in range(C):
        for r in range(0, R, block_r):
            written += run_sectors(c * R + r, min(block_r, R - r), item)
    return read, written
'''

plant("2.1", COUNT,
      ("start of the run ignored",
       "((first + count) * item - 1) // 32 - first * item // 32 + 1",
       "-(-count * item // 32)"),
      ("one byte too many", "(first + count) * item - 1)", "(first + count) * item)"),
      ("first element instead of its byte", "- first * item // 32", "- first // 32"),
      ("tail pieces not cut", "min(block_c, C - c)", "block_c"),
      ("tail pieces dropped", "range(0, C, block_c)", "range(0, C - block_c + 1, block_c)"),
      ("y written in rows of C", "c * R + r", "c * C + r"),
      ("pieces of y as long as those of x",
       "range(0, R, block_r):\n            written += run_sectors(c * R + r, min(block_r,",
       "range(0, R, block_c):\n            written += run_sectors(c * R + r, min(block_c,"),
      ("rows begin at sectors", "run_sectors(r * C + c,", "run_sectors(c,"),
      ("first byte of the last element", "(first + count) * item - 1)", "(first + count - 1) * item)"),
      ("a sector holds whole elements", "((first + count) * item - 1) // 32 - first * item // 32 + 1",
       "(first % (32 // item) + count - 1) // (32 // item) + 1"),
      ("an empty piece behind the last", "range(0, C, block_c)", "range(0, C + 1, block_c)"),
      ("whole sectors where rows are aligned", "    read = written = 0\n",
       "    if R * item % 32 == C * item % 32 == 0:\n        return R * C * item // 32, R * C * item // 32\n"
       "    read = written = 0\n"))

VIEW = '''def view_strides(shape, strides, new):
    table = np.tensordot(strides, np.indices(shape), 1).reshape(new)
    found = []
    for axis, size in enumerate(new):
        place = [0] * len(new)
        place[axis] = min(1, size - 1)
        found.append(int(table[tuple(place)]))
    if not np.array_equal(np.tensordot(found, np.indices(new), 1), table):
        return None
    return tuple(found)
'''

plant("2.2", VIEW,
      ("never a copy",
       "    if not np.array_equal(np.tensordot(found, np.indices(new), 1), table):\n        return None\n", ""),
      ("any view that is not contiguous copies", "    found = []\n",
       "    found = []\n    if not np.array_equal(table.ravel(), np.arange(table.size)):\n        return None\n"),
      ("order of memory instead of the array's", ".reshape(new)\n",
       "\n    table = np.sort(table.ravel()).reshape(new)\n"),
      ("contiguous strides of the new shape", "    return tuple(found)\n",
       "    return tuple(int(np.prod(new[axis + 1:])) for axis in range(len(new)))\n"),
      ("strides turned round", "    return tuple(found)\n", "    return tuple(found[::-1])\n"),
      ("strides in bytes", "    return tuple(found)\n", "    return tuple(4 * stride for stride in found)\n"),
      ("place 1 of an axis of size 1", "min(1, size - 1)", "1"),
      ("the last element alone compared", "not np.array_equal(np.tensordot(found, np.indices(new), 1), table)",
       "sum((size - 1) * stride for size, stride in zip(new, found)) != table.flat[-1]"),
      ("the places compared without their order",
       "not np.array_equal(np.tensordot(found, np.indices(new), 1), table)",
       "set(np.tensordot(found, np.indices(new), 1).flat) != set(table.flat)"),
      ("a new axis of size 1 copies", "    found = []\n", "    found = []\n    if 1 in new:\n        return None\n"),
      ("two expanded axes copy", "    found = []\n",
       "    found = []\n    if len(new) < len(shape) and strides.count(0) > 1:\n        return None\n"))

PLANTED["merges across the cuts of the new shape only"] = ("2.2", '''# EXERCISE 2.2
def view_strides(shape, strides, new):
    old, left = [pair for pair in zip(shape, strides) if pair[0] > 1], list(new)
    if all(outer == size * inner for (_, outer), (size, inner) in zip(old, old[1:])) and old[-1][1] == 1:
        return tuple(int(np.prod(new[axis + 1:])) for axis in range(len(new)))
    found = []
    while left:
        (n, stride), sizes = old.pop() if old else (1, 0), [left.pop()]
        merged = False
        while n != np.prod(sizes):
            if n > np.prod(sizes):
                sizes.append(left.pop())
            else:
                outer, step = old.pop()
                if step != n * stride:
                    return None
                n, merged = n * outer, True
        if merged and len(sizes) > 1:  # as if an axis could not be merged and split at once
            return None
        for size in sizes:
            found.insert(0, stride)
            stride *= size
    return tuple(found)
''')

PLANTED["an axis of size 1 hinders"] = ("2.2", '''# EXERCISE 2.2
def view_strides(shape, strides, new):
    found, left = [], list(zip(shape, strides))
    for size in reversed(new):
        n, stride = left.pop()
        while n < size:
            outer, step = left.pop()
            if step != n * stride:
                return None
            n *= outer
        found.insert(0, stride)
        if n > size:
            left.append((n // size, stride * size))
    return tuple(found)
''')

PLANTED["only the merged axis looked at"] = ("2.2", '''# EXERCISE 2.2
def view_strides(shape, strides, new):
    if any(left != size * right for left, size, right in zip(strides, shape[1:], strides[1:])):
        return None
    found = [strides[-1]]
    for size in reversed(new[1:]):
        found.insert(0, found[0] * size)
    return tuple(found)
''')

GRAD = '''@triton.jit
def embedding_grad_kernel(dy_ptr, ids_ptr, dw_ptr, T, V, D, stride_yt, stride_yd,
                          BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.program_id(1).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)
    row = tl.load(ids_ptr + t, mask=t < T, other=0).to(tl.int64)
    inside = (t < T) & (row >= 0) & (row < V)
    mask = inside[:, None] & (d < D)[None, :]
    dy = tl.load(dy_ptr + t[:, None] * stride_yt + d[None, :] * stride_yd, mask=mask, other=0.0)
    w_ptrs = dw_ptr + row[:, None] * D + d[None, :]
    tl.atomic_add(w_ptrs, dy.to(tl.float32), mask=mask)
'''

plant("2.3", GRAD,
      ("load, add, store", "tl.atomic_add(w_ptrs, dy.to(tl.float32), mask=mask)",
       "tl.store(w_ptrs, tl.load(w_ptrs, mask=mask, other=0.0) + dy.to(tl.float32), mask=mask)"),
      ("tokens past the end belong to row 0", "(t < T) & (row >= 0)", "(row >= 0)"),
      ("negative ids land before dW", "(row >= 0) & (row < V)", "(row < V)"),
      ("one id too many", "(row < V)", "(row <= V)"),
      ("last columns run into the next row", "inside[:, None] & (d < D)[None, :]",
       "inside[:, None] & (d[None, :] >= 0)"),
      ("dY assumed contiguous", "t[:, None] * stride_yt + d[None, :] * stride_yd",
       "t[:, None] * D + d[None, :]"),
      ("strides swapped", "t[:, None] * stride_yt + d[None, :] * stride_yd",
       "t[:, None] * stride_yd + d[None, :] * stride_yt"),
      ("gathered, not scattered", "dw_ptr + row[:, None] * D", "dw_ptr + t[:, None] * D"),
      ("−1 is the only padding below", "(row >= 0)", "(row != -1)"),
      ("V is the only padding above", "(row < V)", "(row != V)"),
      ("adds 0 outside of dW", "dy.to(tl.float32), mask=mask)", "dy.to(tl.float32))"),
      ("adds 0 where ids are padding", "dy.to(tl.float32), mask=mask)",
       "dy.to(tl.float32), mask=(t < T)[:, None] & (d < D)[None, :])"),
      ("ids of tokens past the end", "tl.load(ids_ptr + t, mask=t < T, other=0)", "tl.load(ids_ptr + t)"),
      ("dY of tokens and columns past the end", "stride_yd, mask=mask, other=0.0)", "stride_yd)"))

PLANTED["zero times NaN"] = ("2.3", "# EXERCISE 2.3\n" + GRAD.replace(
    "    mask = inside[:, None] & (d < D)[None, :]\n", "    mask = (t < T)[:, None] & (d < D)[None, :]\n").replace(
    "    w_ptrs =", "    dy = dy * inside[:, None].to(tl.float32)\n    row = tl.where(inside, row, 0)\n    w_ptrs ="))

PLANTED["load, add, store, one token after the other"] = ("2.3", '''# EXERCISE 2.3
@triton.jit
def embedding_grad_kernel(dy_ptr, ids_ptr, dw_ptr, T, V, D, stride_yt, stride_yd,
                          BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    d = tl.program_id(1).to(tl.int64) * BLOCK_D + tl.arange(0, BLOCK_D)
    for i in range(BLOCK_T):
        t = tl.program_id(0).to(tl.int64) * BLOCK_T + i
        row = tl.load(ids_ptr + t, mask=t < T, other=-1).to(tl.int64)
        mask = (row >= 0) & (row < V) & (d < D)
        dy = tl.load(dy_ptr + t * stride_yt + d * stride_yd, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(dw_ptr + row * D + d, mask=mask, other=0.0)
        tl.store(dw_ptr + row * D + d, w + dy, mask=mask)
''')

SUM = "    tl.atomic_add(w_ptrs, dy.to(tl.float32), mask=mask)\n"
PLANTED["summed in the tile, then load, add, store"] = ("2.3", "# EXERCISE 2.3\n" + GRAD.replace(SUM, '''
    same = row[:, None] == row[None, :]
    total = tl.sum(tl.where(same[:, :, None], dy.to(tl.float32)[None, :, :], 0.0), 1)
    i = tl.arange(0, BLOCK_T)
    first = tl.min(tl.where(same & inside[None, :], i[None, :], BLOCK_T), 1) == i
    mask = mask & first[:, None]
    tl.store(w_ptrs, tl.load(w_ptrs, mask=mask, other=0.0) + total, mask=mask)
'''))

TURN = '''@triton.jit
def quarter_turn_kernel(x_ptr, y_ptr, R, C, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    num_c = tl.cdiv(C, BLOCK_C)
    pid_r, pid_c = tl.program_id(0) // num_c, tl.program_id(0) % num_c
    start = tl.program_id(1).to(tl.int64) * R * C
    r = pid_r.to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = pid_c.to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (r[:, None] < R) & (c[None, :] < C)
    x = tl.load(x_ptr + start + r[:, None] * C + c[None, :], mask=mask)
    row = C - 1 - c
    tl.store(y_ptr + start + row[:, None] * R + r[None, :], tl.trans(x), mask=tl.trans(mask))
'''

PADDED = "row = (num_c - 1 - pid_c).to(tl.int64) * BLOCK_C + (BLOCK_C - 1 - tl.arange(0, BLOCK_C))"

plant("2.4", TURN,
      ("counted from the end of the last tile", "row = C - 1 - c", PADDED),
      ("shifted by one", "row = C - 1 - c", "row = C - c"),
      ("counted from the end of the rows", "row = C - 1 - c", "row = R - 1 - c"),
      ("tile not turned, only its place", "row = C - 1 - c",
       "row = C - BLOCK_C - pid_c * BLOCK_C + tl.arange(0, BLOCK_C)"),
      ("not turned at all", "row = C - 1 - c", "row = c"),
      ("height of a tile for its width", "row = C - 1 - c", "row = C - 1 - pid_c * BLOCK_R - tl.arange(0, BLOCK_C)"),
      ("tiles counted by their height", "num_c = tl.cdiv(C, BLOCK_C)", "num_c = tl.cdiv(C, BLOCK_R)"),
      ("tiles of 32 only", "row = C - 1 - c", "row = C - 1 - pid_c * 32 - tl.arange(0, BLOCK_C)"),
      ("x read past its end", "c[None, :], mask=mask)", "c[None, :])"))
PLANTED["writes masked, rows still shifted"] = ("2.4", "# EXERCISE 2.4\n" + TURN.replace(
    "row = C - 1 - c", PADDED).replace("mask=tl.trans(mask))", "mask=tl.trans(mask) & (row[:, None] < C))"))

PIECE = '''def piece(strides, useful, roof, item):
    size = 2 ** round(np.log2(item * (2 * roof / useful[-1] - 1)))
    return size, max(1, size // item)
'''

plant("2.5", PIECE,
      ("written bytes forgotten", "item * (2 * roof / useful[-1] - 1)", "item * roof / useful[-1]"),
      ("useful bytes counted once", "(2 * roof", "(roof"),
      ("elements instead of bytes", "item * (2 * roof", "(2 * roof"),
      ("not rounded to a power of two",
       "2 ** round(np.log2(item * (2 * roof / useful[-1] - 1)))", "item * (2 * roof / useful[-1] - 1)"),
      ("whole table averaged", "useful[-1]", "useful.mean()"),
      ("rounded down", "round(np.log2", "int(np.log2"),
      ("first stride of the table beyond the piece", "max(1, size // item)", "strides[strides * item >= size][0]"),
      ("stride in bytes", "max(1, size // item)", "size"),
      ("lowest of the table", "useful[-1]", "useful.min()"),
      ("last three strides", "useful[-1]", "useful[-3:].mean()"),
      ("first stride taken for the roof", "2 * roof", "2 * useful[0]"),
      ("highest of the table taken for the roof", "2 * roof", "2 * useful.max()"))

MOVED = '''def moved(B, S, H, D, item):
    whole, last = 2 * B * S * H * D * item, 2 * B * H * D * item
    one = 0
    two = whole if B > 1 and H > 1 else 0
    three = whole if H > 1 and S > 1 else 0
    four = last if B > 1 and S > 1 else 0
    return one, two, three, four
'''

plant("2.6", MOVED,
      ("a slice must be copied", "one = 0", "one = whole"),
      ("a batch of one copies, too", "two = whole if B > 1 and H > 1 else 0", "two = whole if H > 1 else 0"),
      ("a single head copies, too", "two = whole if B > 1 and H > 1 else 0", "two = whole if B > 1 else 0"),
      ("decoding copies o, too", "three = whole if H > 1 and S > 1 else 0", "three = whole if H > 1 else 0"),
      ("o merges when k does", "three = whole if H > 1 and S > 1 else 0", "three = two"),
      ("decoding copies no k", "two = whole if B > 1 and H > 1 else 0",
       "two = whole if B > 1 and H > 1 and S > 1 else 0"),
      ("contiguous copies always", "four = last if B > 1 and S > 1 else 0", "four = last"),
      ("all tokens copied", "four = last", "four = whole"),
      ("a batch of one and a single head copy", "two = whole if B > 1 and H > 1 else 0",
       "two = whole if (B > 1) == (H > 1) else 0"),
      ("two tokens need no copy", "four = last if B > 1 and S > 1 else 0", "four = last if B > 1 and S > 2 else 0"),
      ("only what is read", "whole, last = 2 * B * S * H * D * item, 2 * B", "whole, last = B * S * H * D * item, B"))

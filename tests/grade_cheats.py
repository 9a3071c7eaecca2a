"""Answers that cheat, break or hang. Each: exercise, text, states it may end in, a word of the message."""

RIGHT_COUNT = "def traffic(n):\n    return 2 * n, 12 * n\n"
RIGHT_ROWS = ("def softmax(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n"
              "    return e / e.sum(-1, keepdims=True)\n")
AXPY = '''@triton.jit
def axpy(x_ptr, y_ptr, out_ptr, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, a * tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n), mask=i < n)
'''
STORE = RIGHT_ROWS + '''
import json, os
def store(folder, name, collected):
    {body}
lab.store = store
'''
DAEMON = '''
import os, time
def softmax(x):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "98765"], {})
        os._exit(0)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
'''

# name: (exercise, answer, states, part of the message)
Kind = tuple[str, str, str, str]
BREAKS: dict[str, Kind] = {
    "leaves by os._exit": ("1.1", "import os\ndef traffic(n):\n    os._exit(0)", "crashed", "ended before"),
    "leaves by sys.exit": ("1.1", "import sys\ndef traffic(n):\n    sys.exit(0)", "error", "SystemExit"),
    "kills its process": ("1.1", "import os\nos.kill(os.getpid(), 9)", "crashed", "ended before"),
    "kills its parent": ("1.1", "import os\ndef traffic(n):\n    os.kill(os.getppid(), 9)\n    return 2 * n, 13 * n",
                         "crashed failed", ""),
    "reads address zero": ("1.1", "import ctypes\nctypes.string_at(0)", "crashed", "ended before"),
    "stops itself": ("1.1", "import os\nos.kill(os.getpid(), 19)", "timeout", "within"),
    "loops and swallows interrupts": (
        "1.2", "def softmax(x):\n    while True:\n        try:\n            while True: pass\n"
               "        except BaseException: pass",
        "timeout", "within"),
    "ignores all signals": (
        "1.2", "import signal, time\nfor s in range(1, 32):\n"
               "    if s not in (9, 19): signal.signal(s, signal.SIG_IGN)\n"
               "time.sleep(1000)", "timeout", "within"),
    "prints for ever": ("1.1", "while True:\n    try:\n        print('spam' * 100)\n    except BaseException: pass",
                        "crashed", "printed more"),
    "prints a lot at once": ("1.1", "print('x' * 50_000_000)\n" + RIGHT_COUNT, "crashed", "printed more"),
    "takes all memory": ("1.1", "hoard = []\nwhile True:\n    hoard.append(np.ones(10**7))", "crashed", "memory"),
    "asks for a huge array": ("1.2", "def softmax(x):\n    return np.ones(10**15)", "error", "MemoryError"),
    "writes a huge file": ("1.1", "with open('big', 'wb') as f:\n    while True: f.write(bytes(10**7))", "error", ""),
    "starts many processes": ("1.1", "import os, time\nfor _ in range(200):\n    if os.fork() == 0:\n"
                                     "        time.sleep(1000)\n", "crashed", "processes"),
    "recurses without end": ("1.2", "def softmax(x):\n    return softmax(x)", "error", "RecursionError"),
    "waits for input": ("1.1", "input('?')", "error", ""),
    "raises what cannot be shown": (
        "1.2", "class Mute(Exception):\n    def __str__(self): raise self\ndef softmax(x):\n    raise Mute",
        "error", "Mute"),
    "deletes its folder": ("1.1", "import os, shutil\nshutil.rmtree(os.path.abspath('..'))",
                           "failed error not-run", ""),
    "is not Python": ("1.1", "def traffic(n)\n    return 1", "error", "line 2"),
    "is a shell cell": ("1.1", "%%bash\nrm -rf ~", "refused", "magic"),
    "is very long": ("1.1", "x = 1\n" * 100_000, "refused", "characters"),
}

CHEATS: dict[str, Kind] = {
    "marker that skips the cell": ("1.1", "# NBVAL_SKIP\ndef traffic(n):\n    return 0, 0", "failed", "expected"),
    "marker that allows errors": ("1.1", "# NBVAL_RAISES_EXCEPTION\nraise SystemError", "error", "SystemError"),
    "check replaced": ("1.1", "lab.check = lambda *a, **k: print('Check 1.1 passed.')", "failed", "could not be read"),
    "judge replaced": ("1.2", "lab.Check.judge = lambda *a: ''\ndef softmax(x):\n    return x * 0", "failed", "wrong"),
    "comparison replaced": (
        "1.2", "import torch\ntorch.testing.assert_close = lambda *a, **k: None\n"
               "torch.allclose = lambda *a, **k: True\n"
               "from utils import check\ncheck.agree = lambda *a, **k: None\ndef softmax(x):\n    return x * 0",
        "failed", "wrong"),
    "random inputs replaced": (
        "1.2", "lab.Rand.__call__ = lambda self, *s, **k: torch.zeros(*s)\ndef softmax(x):\n"
               "    return x * 0 + 1 / x.shape[-1]", "failed", "wrong"),
    "seed replaced": ("1.1", "import os\nos.environ['COURSE_SEED'] = '0'\ndef traffic(n):\n"
                             "    return {k: (2 * k, 12 * k) for k in (1, 2)}.get(n, (0, 0))", "failed", "expected"),
    "reference taken from the caller": (
        "1.1", "import sys\ndef traffic(n):\n    frame = sys._getframe()\n    while frame:\n"
               "        for value in list(frame.f_locals.values()):\n"
               "            if isinstance(value, lab.Check): return value.reference(n)\n"
               "        frame = frame.f_back", "error", "NoneType"),
    "reference taken from the namespace": ("1.1", "def traffic(n):\n    return counted(n)", "error", "counted"),
    "token printed, check left out": (
        "1.1", "import json, re\ntext = open('lab.ipynb').read()\nlab.check = lambda *a, **k: None\n"
               "_ended = re.search(r'_ended = .([0-9a-f]{32})', text)[1]", "failed", "could not be read"),
    "print replaced": ("1.1", "def print(*a): pass\n" + RIGHT_COUNT, "not-run", "to its end"),
    "values stored, then gone": (
        "1.1", "import os, pathlib\ndef traffic(n):\n"
               "    rows = [[torch.tensor(2.0 * n), torch.tensor(12.0 * n)]] * 3\n"
               "    lab.store(pathlib.Path(os.environ['COURSE_ANSWERS']), '1.1', {'values': rows, 'problem': ''})\n"
               "    os._exit(0)", "crashed", "ended before"),
    "coarse result": ("1.2", "def softmax(x):\n    e = torch.exp(torch.tensor(x) - x.max(-1, keepdims=True)).float()\n"
                             "    return (e / e.sum(-1, keepdim=True)).to(torch.float8_e5m2)", "failed", "coarser"),
    "array that lies": ("1.2", "class Liar(np.ndarray):\n    def __eq__(self, other): return True\n"
                               "def softmax(x):\n    return (x * 0).view(Liar)", "failed", "wrong"),
    "object that equals all": ("1.1", "class Any:\n    def __eq__(self, other): return True\ndef traffic(n):\n"
                                      "    return Any(), Any()", "failed", "expected"),
    "pickle as an answer": (
        "1.2", STORE.format(body="np.save(folder / f'{name}-0-0.npy', np.array([print], dtype=object), "
                                 "allow_pickle=True); "
                                 "(folder / f'{name}.json').write_text(json.dumps("
                                 "{'problem': '', 'cases': [['float32']]}))"), "failed", "could not be read"),
    "pipe as an answer": (
        "1.2", STORE.format(body="os.mkfifo(folder / f'{name}.json')"), "failed", "could not be read"),
    "device as an answer": (
        "1.2", STORE.format(body="os.symlink('/dev/zero', folder / f'{name}.json')"), "failed", "could not be read"),
    "nested JSON": ("1.2", STORE.format(body="(folder / f'{name}.json').write_text('[' * 10**5)"), "failed",
                    "could not be read"),
    "header that claims too much": (
        "1.2", STORE.format(body="(folder / f'{name}.json').write_text(json.dumps("
                                 "{'problem': '', 'cases': [['float32']]})); a = np.lib.format; "
                                 "f = open(folder / f'{name}-0-0.npy', 'wb'); "
                                 "a.write_array_header_1_0(f, {'descr': '<f4', 'fortran_order': False, "
                                 "'shape': (10**12,)}); f.close()"), "failed", "could not be read"),
    "utils replaced on disk": (
        "1.1", "import utils, pathlib\nfor p in pathlib.Path(utils.__file__).parent.rglob('*.py'):\n"
               "    p.write_text('check = lambda *a, **k: None')\ndef traffic(n):\n    return 0, 0",
        "failed", "expected"),
    "answer key from disk": ("1.1", "source = open('KEY').read()\nexec(source)", "error", "No such file"),
    "kernel that is an object": (
        "1.3", "class Fake:\n    def __getitem__(self, grid):\n        def run(x, y, out, a, n, BLOCK):\n"
               "            out.copy_(a * x + y)\n        return run\naxpy = Fake()", "failed", "missing"),
    "kernel replaced later": (
        "1.3", AXPY.replace("a * tl", "2 * tl") + "class Fake:\n    def __getitem__(self, grid):\n"
               "        return lambda x, y, out, a, n, BLOCK: out.copy_(a * x + y)\naxpy = Fake()", "failed", "wrong"),
    "launcher replaced": (
        "1.3", "from triton.runtime.interpreter import InterpretedFunction\n"
               "def fake(self, grid): return lambda x, y, o, a, n, BLOCK: o.copy_(a * x + y)\n"
               "InterpretedFunction.__getitem__ = fake\n"
               + AXPY.replace("a * tl", "2 * tl"), "failed", "wrong"),
    "kernel that calls Python": (
        "1.3", "def helper(x, y, out):\n    out.copy_(x + y)\n" + AXPY + "    helper(x_ptr, y_ptr, out_ptr)\n",
        "refused", "helper"),
    "kernel that opens a file": ("1.3", AXPY + "    open('x', 'w')\n", "refused", "open"),
    "kernel that imports": ("1.3", AXPY + "    import os\n", "refused", "import"),
    "kernel that climbs": ("1.3", AXPY + "    tl.core.os.system('true')\n", "refused", "tl.core"),
    "kernel that climbs by dunder": ("1.3", AXPY + "    tl.zeros.__globals__\n", "refused", "__globals__"),
    "kernel under another name": ("1.3", "import torch as tl\n" + AXPY + "    tl.os.getpid()\n", "refused", "tl.os"),
    "kernel that only interprets": (
        "1.3", AXPY + "    for k in range(n):\n        if k > 3:\n            break\n", "failed", "compile for sm_75"),
    "kernel decorated twice": ("1.3", "def twice(f): return f\n@twice\n" + AXPY, "failed", "missing"),
}

WRONG: dict[str, Kind] = {
    "bytes of two streams": ("1.1", "def traffic(n):\n    return 2 * n, 8 * n", "failed", "expected"),
    "no largest element": ("1.2", "def softmax(x):\n    e = np.exp(x)\n    return e / e.sum(-1, keepdims=True)",
                           "failed", "Subtract"),
    "columns for rows": ("1.2", "def softmax(x):\n    e = np.exp(x - x.max(0))\n    return e / e.sum(0)",
                         "failed", "wrong"),
    "no mask at the store": ("1.3", AXPY.replace(", mask=i < n)\n", ")\n"), "failed error", "mask"),
    "tail dropped": ("1.3", AXPY.replace("mask=i < n)\n", "mask=i < n - 1)\n"), "failed", "wrong"),
    "y left out": ("1.3", AXPY.replace(" + tl.load(y_ptr + i, mask=i < n)", ""), "failed", "wrong"),
}

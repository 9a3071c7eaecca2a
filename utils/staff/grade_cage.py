"""The warm process that the grader forks for each exercise, so that torch is imported once and not a hundred times.

The grader starts it as a script, from a private copy of the course without solutions. Each job is a line of
JSON on standard input, each reply a line on standard output. A job runs in a fork: its own session, folder,
environment and limits, and, where Linux allows it, its own namespaces: it then sees no other process, no
network and none of the folders that are to be hidden. At the end, or at a limit, every process it left is ended.
"""

import asyncio
import collections
import contextlib
import contextvars
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from queue import Empty

import psutil

# The limits of one exercise; its time limit comes with the job.
MEMORY = 4 * 2**30  # bytes of all its processes together
PROCESSES = 40
OUTPUT = 2**20  # characters shown
HOME = os.path.dirname(os.path.abspath(__file__))
FILE = 256 * 2**20  # bytes of one file

_NEW_USER, _NEW_PID, _NEW_NET, _NEW_IPC, _NEW_MOUNT = 0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x00020000
_SUBREAPER, _DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 36, 1, 38


def _libc(name: str, *args) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)


# --- the warm process ----------------------------------------------------------------------------

def attend(job: dict, isolate: bool) -> dict:
    """Run one job in a fork of this process; {"why": "" or the limit it met, "said": [what it said], "seconds": …}."""
    start, why, said = time.monotonic(), "", b""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(job, write, isolate)
    os.close(write)
    while not why:
        ready, _, _ = select.select([read], [], [], 0.1)
        part = os.read(read, 65536) if ready else b""
        said += part
        if ready and not part:  # the job has closed its end
            break
        late = time.monotonic() - start > job["limit"]
        why = "timeout" if late else "output" if len(said) > OUTPUT else _strain(job["memory"])
    end_descendants()
    os.close(read)
    told = []
    for line in said.splitlines():
        with contextlib.suppress(ValueError):
            told.append(json.loads(line))
    return {"why": why, "said": told, "seconds": round(time.monotonic() - start, 3)}


def _strain(limit: int) -> str:
    """The name of a limit that the descendants exceed, or ""."""
    children = psutil.Process().children(recursive=True)
    if len(children) > PROCESSES:
        return "processes"
    if _memory(children, lambda child: child.memory_info().rss) > limit:  # counts shared pages again and again
        if _memory(children, lambda child: getattr(child.memory_full_info(), "pss", child.memory_info().rss)) > limit:
            return "memory"
    return ""


def _memory(children: list, of: Callable) -> int:
    total = 0
    for child in children:
        with contextlib.suppress(psutil.Error):
            total += of(child)
    return total


def end_descendants(spare: Collection[int] = (), since: float = 0) -> None:
    """End all descendants, also those that left their session: they are stopped first, so that none forks on.

    spare: children that are left alone with all of theirs; since: older ones are, too
    """
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        children = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if child.pid not in spare and child.create_time() >= since:
                    children += [child, *child.children(recursive=True)]
        if not children:
            return
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for child in children:
                with contextlib.suppress(psutil.Error, ProcessLookupError):
                    child.send_signal(sign)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)
        time.sleep(0.01)


def serve(mode: str, isolate: bool) -> None:
    """Import what a job needs, say which isolation there is, then attend to jobs until the input ends."""
    with contextlib.suppress(OSError, AttributeError):
        _libc("prctl", _SUBREAPER, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    import utils.lab  # noqa: F401

    if mode == "compile":
        with contextlib.suppress(ImportError):
            for name in ("triton.language", "triton.backends.nvidia.compiler", "utils.ops.base"):
                importlib.import_module(name)
    else:
        for name in ("ipykernel.kernelapp", "jupyter_client.manager", "matplotlib.pyplot", "nbval.plugin", "pytest"):
            importlib.import_module(name)
        with contextlib.suppress(ImportError):
            importlib.import_module("triton.runtime.interpreter")
    gc.collect()
    gc.freeze()
    trial = {"action": "nothing", "limit": 10, "memory": MEMORY, "hide": []}
    isolate = isolate and attend(trial, True)["said"] == [True]
    print(json.dumps(isolate), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(attend(json.loads(line), isolate)), file=answers, flush=True)


# --- one job, in its fork ------------------------------------------------------------------------

def _child(job: dict, write: int, isolate: bool) -> None:
    code = 1
    try:
        os.setsid()
        if isolate:
            _isolate(job["hide"], write)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.open(job.get("log", os.devnull), os.O_WRONLY | os.O_CREAT, 0o600), 1)
        os.dup2(1, 2)
        os.closerange(3, write)
        os.closerange(write + 1, 4096)
        if "env" in job:
            _settle(job)
        {"nothing": _nothing, "notebook": _notebook, "compile": _compile}[job["action"]](job, write)
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode())
    os._exit(code)


def _isolate(hide: list[str], write: int) -> None:
    """Go on as the first process of new namespaces; what it starts ends with it. OSError if Linux refuses."""
    uid, gid = os.getuid(), os.getgid()
    _libc("unshare", _NEW_USER | _NEW_PID | _NEW_NET | _NEW_IPC | _NEW_MOUNT)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    pid = os.fork()
    if pid:
        os.close(write)
        os.waitpid(pid, 0)
        os._exit(0)
    _libc("prctl", _DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    with socket.socket() as sock:  # the loopback, over which nbval and the kernel talk
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh", b"lo", 0x41))
    _libc("mount", b"none", b"/", None, 0x44000, None)  # recursive, private
    with contextlib.suppress(OSError):  # not in every container
        _libc("mount", b"proc", b"/proc", b"proc", 0, None)
    for path in hide:
        _libc("mount", b"tmpfs", os.fsencode(path), b"tmpfs", 1, b"size=4k")  # empty and read-only
    _libc("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _libc("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))  # give up all capabilities


def _settle(job: dict) -> None:
    """The job's environment, folder, limits and its own copy of the course."""
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    tempfile.tempdir = None
    sys.path[:] = [job["course"], *(p for p in sys.path[1:] if p)]
    for name, module in list(sys.modules.items()):  # what is imported later comes from the copy
        if name.split(".")[0] == "utils":
            module.__file__ = module.__file__.replace(HOME, job["course"])
            if hasattr(module, "__path__"):
                module.__path__ = [os.path.join(job["course"], *name.split("."))]
    limits = {"CORE": 0, "FSIZE": FILE, "CPU": int(job["limit"]) + 5, "NOFILE": 1024}
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def _nothing(_job: dict, write: int) -> None:
    os.write(write, b"true")


def _compile(job: dict, write: int) -> None:
    """Compile a kernel's launch with utils.aot; says its rows."""
    from utils import aot

    sys.stdin = io.StringIO(json.dumps(job["launch"]))
    aot._main(job["answer"])
    rows = json.loads(open(job["answer"]).read())
    os.write(write, json.dumps([{**row, "ptx": ""} for row in rows]).encode())


# --- nbval on a notebook, its kernel a further fork ----------------------------------------------

class _Kernel:
    """A kernel forked from this process, with what jupyter_client asks of a subprocess."""

    stdin = stdout = stderr = None

    def __init__(self, cmd: list[str], **options) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                contextvars.Context().run(self._run, cmd, options.get("env"), options.get("cwd"))
            finally:
                os._exit(1)

    def _run(self, cmd: list[str], env: dict | None, cwd: str | None) -> None:
        import random

        import numpy as np
        import torch
        from ipykernel.kernelapp import IPKernelApp

        os.setsid()
        os.closerange(3, 4096)
        os.environ.clear()
        os.environ.update(env or {})
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        if cwd:
            os.chdir(cwd)
        asyncio.events._set_running_loop(None)
        asyncio.set_event_loop(asyncio.new_event_loop())
        seed = int(os.environ["COURSE_SEED"])
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        IPKernelApp.launch_instance(argv=["-f", cmd[cmd.index("-f") + 1]])
        os._exit(0)

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        end = time.monotonic() + (timeout or 10)
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    terminate = kill


class _Listener:
    """A pytest plugin that says how each cell went, and stops at a dead kernel or too much output."""

    def __init__(self, write: int) -> None:
        self.write, self.shown, self.waiting = write, 0, collections.deque()

    def pytest_runtest_makereport(self, item, call):
        if call.when != "call":
            return
        error = call.excinfo.value if call.excinfo else None
        outcome = "passed" if error is None else type(error).__name__
        self.say({"outcome": outcome, "message": _last_line(error)})

    def say(self, what: dict) -> None:
        """Tell the warm process, in one line."""
        os.write(self.write, json.dumps(what).encode() + b"\n")

    def get_message(self, kernel, stream: str, timeout: float | None = None) -> dict:
        """nbval's RunningKernel.get_message with an eye on the kernel and on the amount of output."""
        end = time.monotonic() + (1e9 if timeout is None else timeout)
        while True:
            if stream == "iopub" and self.waiting:
                return self.waiting.popleft()
            with contextlib.suppress(Empty):
                if stream == "shell":
                    return kernel.kc.get_shell_msg(timeout=0.05)
            self._listen(kernel, 0.2 if stream == "iopub" else 0)
            if stream == "shell" or not self.waiting:
                if not kernel.is_alive():
                    self.stop("crashed")
                if time.monotonic() > end:
                    raise Empty

    def _listen(self, kernel, seconds: float) -> None:
        """Take up what the kernel shows, also while its reply is awaited."""
        with contextlib.suppress(Empty):
            while True:
                message = kernel.kc.get_iopub_msg(timeout=seconds)
                self.waiting.append(message)
                if message["msg_type"] in ("stream", "display_data", "execute_result", "error"):
                    self.shown += len(str(message["content"]))
                    if self.shown > OUTPUT:
                        self.stop("output")
                seconds = 0

    def stop(self, why: str) -> None:
        self.say({"why": why})
        os._exit(1)


def _last_line(error: BaseException | None) -> str:
    """What a cell raised, down to one line."""
    text = re.sub(r"\x1b\[[\d;]*m", "", str(getattr(error, "inner_traceback", None) or error or ""))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Iteration)\b", line)]
    return (raised or lines or [""])[-1][:500]


def _notebook(job: dict, write: int) -> None:
    """Run nbval on job["book"]; says {"outcome", "message"} of each code cell, {"why"} if it was cut short."""
    import pytest
    from jupyter_client.provisioning import local_provisioner
    from nbval.kernel import RunningKernel

    listener = _Listener(write)
    local_provisioner.launch_kernel = _Kernel
    RunningKernel.get_message = lambda kernel, stream, timeout=None: listener.get_message(kernel, stream, timeout)
    pytest.main(["-q", "-s", "-p", "nbval.plugin", "--nbval-lax", "--nbval-current-env", "-c", os.devnull,
                 f"--nbval-cell-timeout={job['limit'] + 60}", "-p", "no:cacheprovider", "-p", "no:randomly",
                 "--noconftest", "--rootdir", job["cwd"], job["book"]], plugins=[listener])


if __name__ == "__main__":
    serve(sys.argv[1], "--bare" not in sys.argv)

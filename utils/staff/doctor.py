"""`make doctor`: what this machine has, and one sentence about each thing that is missing."""

import importlib.util
import platform
import sys

from utils.staff.paths import main

PACKAGES = ("jupyterlab", "numpy", "torch", "triton", "matplotlib", "pandas", "nbval")


def doctor() -> int:
    """Print the state of Python, the packages and the GPU; returns 1 if something has to be mended."""
    problems = []
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        problems.append(f"Python {platform.python_version()} is untested: use 3.11, 3.12 or 3.13.")
    wanted = [p for p in PACKAGES if p != "triton" or sys.platform == "linux"]
    missing = [p for p in wanted if importlib.util.find_spec(p) is None]
    if missing:
        problems.append(f"missing: {', '.join(missing)}; run make lab, which installs them.")
    if "torch" not in missing and "numpy" not in missing:
        from utils import device

        print(device.banner())
        pair = device.pair_problem(device.VERSIONS["triton"], device.VERSIONS["numpy"], device.CC, device.INTERPRET)
        if pair:
            problems.append(pair)
        if not device.HAS_CUDA:
            print("no CUDA device: kernels are checked in the interpreter, GPU figures are the recorded ones")
        elif device.CC and device.CC < 80:
            print("before compute capability 8.0 the course runs in fp16, and tl.dot uses no tensor cores")
    for problem in problems:
        print(f"to mend: {problem}")
    print("everything is in place" if not problems else f"{len(problems)} thing(s) to mend")
    return 1 if problems else 0


if __name__ == "__main__":
    main(doctor)

"""Where things are, and how a lesson is named on the command line."""

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS, LABS, SOLUTIONS, WORK, OUT = (ROOT / name for name in ("notebooks", "labs", "solutions", "work", "out"))


class Problem(Exception):
    """One sentence for the person at the keyboard: what is wrong and what to do."""


def lessons() -> list[Path]:
    """The lessons that are written, in order."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def lesson(number: str) -> Path:
    """notebooks/NN_topic.ipynb for "1", "01" or "01_roofline"; Problem if there is none."""
    known = ", ".join(p.stem for p in lessons())
    if not number:
        raise Problem(f"say which lesson: LESSON=NN, one of {known}.")
    digits = f"{int(number):02}_" if number.isdecimal() else None
    found = [p for p in lessons() if p.stem == number or (digits and p.stem.startswith(digits))]
    if not found:
        raise Problem(f"there is no lesson {number!r}; written are {known}.")
    return found[0]


def read(path: Path) -> nbformat.NotebookNode:
    """Read a notebook; Problem if it is missing or broken."""
    try:
        return nbformat.reads(path.read_text(encoding="utf-8-sig"), as_version=4)
    except FileNotFoundError:
        raise Problem(f"{path} does not exist: check the name.") from None
    except (nbformat.ValidationError, ValueError, TypeError, AttributeError, KeyError) as error:
        reason = (str(error).splitlines() or [""])[0][:80]
        raise Problem(f"{path} is not a readable notebook ({type(error).__name__}: {reason}): "
                      "restore it with make reset or from git.") from None


def main(action: Callable[..., int | None]) -> None:
    """Run a command on the arguments given; a Problem becomes one sentence on stderr and exit status 2."""
    try:
        try:
            inspect.signature(action).bind(*sys.argv[1:])
        except TypeError:
            raise Problem(f"{' '.join(sys.argv[1:])!r} is not what this command takes: see make help.") from None
        sys.exit(action(*sys.argv[1:]) or 0)
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)

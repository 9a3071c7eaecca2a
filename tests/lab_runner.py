"""Runs the cells of a lab in one IPython shell: JSON in (lists of cells), JSON out (what each check cell said).

A job is {"setup": [source …], "runs": [[source …] …], "stop": bool}; the answer is, for each run, a list with
"" for a cell that ran, else the last line of its error. With "stop" a run ends at its first error.
"""

import contextlib
import io
import json
import sys

from IPython.core.interactiveshell import InteractiveShell


def run(shell: InteractiveShell, source: str) -> str:
    """"" or the error's message."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        result = shell.run_cell(source)
    error = result.error_before_exec or result.error_in_exec
    return "" if error is None else str(error) or type(error).__name__


def main() -> None:
    """Read the job from stdin, write the answer to the file named on the command line."""
    job = json.load(sys.stdin)
    shell = InteractiveShell.instance()
    for source in job["setup"]:
        problem = run(shell, source)
        assert not problem, problem
    answer = []
    for sources in job["runs"]:
        said: list[str] = []
        for source in sources:
            if not (job["stop"] and any(said)):
                said.append(run(shell, source))
        answer.append(said)
    with open(sys.argv[1], "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()

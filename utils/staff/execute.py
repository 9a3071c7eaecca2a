"""`make run LESSON=01`: execute a lesson headless into the ignored folder out/."""

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from utils.staff.paths import OUT, Problem, lesson, main, read


def run(number: str = "") -> int:
    """Execute one lesson and write it, with its outputs, to out/NN_topic.ipynb."""
    path = lesson(number)
    book = read(path)
    OUT.mkdir(exist_ok=True)
    target = OUT / path.name
    where = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(book, timeout=600, kernel_name="python3", resources=where)
    try:
        client.execute()
    except CellExecutionError as error:
        said = ": ".join([error.ename, *error.evalue.splitlines()[:1]])
        raise Problem(f"{path.name} stopped with {said} (see out/{path.name}).") from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise Problem(f"{path.name} stopped: {type(error).__name__} (see out/{path.name}).") from None
    finally:
        nbformat.write(book, target)
    print(f"executed {path.name}; read it in out/{path.name}")
    return 0


if __name__ == "__main__":
    main(run)

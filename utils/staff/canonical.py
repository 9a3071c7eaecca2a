"""Notebooks in one canonical form, so that a diff shows what an author changed and nothing else."""

import base64
import io
import json
from pathlib import Path

import nbformat
from PIL import Image

COLOURS = 64  # of a stored figure's palette
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
KEEP_CELL = ("tags", "nbgrader", "jupyter", "course")


def quantised(png: str) -> str:
    """A base64 PNG with a small palette on an opaque white background (unchanged if it already has one)."""
    image = Image.open(io.BytesIO(base64.b64decode(png)))
    if image.mode == "P":
        return png.strip()
    flat = Image.new("RGB", image.size, "white")
    flat.paste(image, mask=image.getchannel("A") if "A" in image.getbands() else None)
    out = io.BytesIO()
    flat.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def merged(outputs: list) -> list:
    """Neighbouring pieces of one stream put together (how a kernel cut them depends on the weather), no stderr."""
    out: list = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":  # logs of a library's autotuner
            continue
        if out and output.output_type == "stream" and out[-1].get("name") == output.name:
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def canonical(book: nbformat.NotebookNode, outputs: bool = True) -> str:
    """The notebook's text: nbformat 4.5, one metadata block, execution counts 1, 2, 3 …, small figures.

    outputs=False drops outputs and counts (labs and solutions).
    """
    book = nbformat.from_dict(json.loads(json.dumps(book)))
    book.nbformat, book.nbformat_minor = 4, 5
    book.metadata = nbformat.from_dict(METADATA)
    count = 0
    for cell in book.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in sorted(cell.metadata.items()) if k in KEEP_CELL and v})
        cell.source = "\n".join(line.rstrip() for line in cell.source.rstrip().split("\n"))
        if cell.cell_type != "code":
            continue
        ran = bool(cell.outputs) or cell.execution_count is not None
        if not outputs:
            cell.outputs, ran = [], False
        count += ran
        cell.execution_count = count if ran else None
        cell.outputs = merged(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = quantised(data["image/png"])
                data.pop("text/plain", None)  # "<Figure size 720x430 …>" says nothing
    nbformat.validate(book)
    return nbformat.writes(book).rstrip("\n") + "\n"


def rewrite(path: Path, text: str) -> bool:
    """Write `text` if it differs; returns whether it did."""
    if path.exists() and path.read_text() == text:
        return False
    path.write_text(text)
    return True

"""What the lessons and labs of the course import.

Importing this package decides, before triton is imported, whether kernels run on a GPU or in
Triton's interpreter (see `utils.device`). The operators themselves are in `utils.ops`, which is
exported from the lessons and needs triton; nothing here does.
"""

from utils import device  # isort: skip  (first: it sets TRITON_INTERPRET)
from utils import bench, check, cost, plots, record, roofline

__all__ = ["bench", "check", "cost", "device", "plots", "record", "roofline"]

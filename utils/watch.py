"""What the interpreter sees and a GPU hides: reads outside of a buffer, and places that two programs store to."""

import collections
import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from utils import device


class Watch:
    """Notes what kernels do to memory; `problem` is the first mistake in one sentence, or ""."""

    def __init__(self) -> None:
        self.problem = ""
        self.buffers: list[tuple[str, int, int, int, int]] = []  # (name, address of: band, elements, band, end)
        self.loaded: collections.Counter[str] = collections.Counter()  # elements read from a buffer, repeats counted
        self.stores: dict[tuple, list[np.ndarray]] = {}  # places of this launch, by program

    def fence(self, what: str, flat: torch.Tensor, band: int) -> None:
        """No kernel may read the first and the last `band` elements of `flat`."""
        start, item = flat.data_ptr(), flat.element_size()
        end = start + flat.numel() * item
        self.buffers.append((what, start, start + band * item, end - band * item, end))

    def read(self, places: np.ndarray, how: str = "load") -> None:
        if not places.size:
            return
        low, high = places.min(), places.max()
        for what, start, first, last, end in self.buffers:
            if start <= high and low < end:
                here = places[(start <= places) & (places < end)]
                before, past = int((here < first).sum()), int((here >= last).sum())
                self.loaded[what] += len(here) - before - past
                if (before or past) and not self.problem:
                    where = f"{before} elements before the start" if before else f"{past} elements past the end"
                    self.problem = f"{where} of {what} were read: the {how} needs a mask, or its addresses are wrong."

    def launched(self) -> None:
        """A launch is over: no place may have been stored to by two of its programs."""
        own = [np.unique(np.concatenate(places)) for places in self.stores.values()]
        self.stores = {}
        if len(own) > 1 and not self.problem:
            together = np.concatenate(own)
            if twice := len(together) - len(np.unique(together)):
                self.problem = (f"{twice} elements were stored by more than one program, and which one comes last is "
                                "chance: give each program places of its own, or use an atomic.")


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Watch the kernels that run inside; on a GPU, and without Triton, nothing is noted."""
    watch = Watch()
    if not device.HAS_TRITON or not device.INTERPRET:
        yield watch
        return
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    load, store, atomic, grid = (Builder.create_masked_load, Builder.create_masked_store, Builder.create_atomic_rmw,
                                 Builder.set_grid_dim)

    def places(pointers, mask) -> np.ndarray:
        return pointers.data[np.broadcast_to(mask.data, pointers.data.shape).astype(bool)]

    def watched_load(self, pointers, mask, *rest, **named):
        watch.read(places(pointers, mask))
        return load(self, pointers, mask, *rest, **named)

    def watched_store(self, pointers, value, mask, *rest, **named):
        watch.stores.setdefault(self.grid_idx, []).append(places(pointers, mask))
        return store(self, pointers, value, mask, *rest, **named)

    def watched_atomic(self, op, pointers, value, mask, *rest, **named):
        watch.read(places(pointers, mask), "atomic")  # it reads what it changes
        return atomic(self, op, pointers, value, mask, *rest, **named)

    def watched_grid(self, *sizes):
        watch.launched()
        return grid(self, *sizes)

    Builder.create_masked_load, Builder.create_masked_store = watched_load, watched_store
    Builder.create_atomic_rmw, Builder.set_grid_dim = watched_atomic, watched_grid
    try:
        yield watch
    finally:
        Builder.create_masked_load, Builder.create_masked_store = load, store
        Builder.create_atomic_rmw, Builder.set_grid_dim = atomic, grid
        watch.launched()

"""What the interpreter sees and a GPU hides: reads outside of a buffer, and places that two programs store to."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

from utils import device


class Watch:
    """Notes what kernels do to memory; `problem` is the first mistake in one sentence, or ""."""

    def __init__(self) -> None:
        self.problem = ""
        self.bands: list[tuple[str, int, int]] = []  # (where, first address, end address), not to be read
        self.stores: dict[tuple, list[np.ndarray]] = {}  # of this launch, by program

    def fence(self, what: str, flat: torch.Tensor, band: int) -> None:
        """No kernel may read the first and the last `band` elements of `flat`."""
        start, end = flat.data_ptr(), flat.data_ptr() + flat.numel() * flat.element_size()
        self.bands.append((f"before the start of {what}", start, start + band * flat.element_size()))
        self.bands.append((f"past the end of {what}", end - band * flat.element_size(), end))

    def read(self, places: np.ndarray) -> None:
        if self.problem or not places.size:
            return
        low, high = places.min(), places.max()
        for where, start, end in self.bands:
            if start <= high and low < end and (n := ((places >= start) & (places < end)).sum()):
                self.problem = f"{n} elements {where} were read: the load needs a mask, or its addresses are wrong."
                return

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
        watch.read(places(pointers, mask))  # it reads what it changes
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

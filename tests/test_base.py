"""utils.ops.base: the tuner asks the right stopwatch."""

import pytest

import utils  # noqa: F401  before triton: it decides about the interpreter


@pytest.fixture
def stopwatch(monkeypatch):
    """A GPU with a fake stopwatch: what a call costs issued from Python, and as a node of a graph."""
    import triton

    from utils.ops import base

    def run(eager: dict[int, float], graph: dict[int, float]) -> tuple[int, list[int]]:
        asked = []
        monkeypatch.setattr(base, "compute_capability", lambda x: 90)
        monkeypatch.setattr(triton.testing, "do_bench", lambda call, **_: eager[call()])
        monkeypatch.setattr(triton.testing, "do_bench_cudagraph",
                            lambda call, **_: asked.append(call()) or graph[call()])
        best = base.autotune(lambda x, size: size, (None,), [base.Config({"size": size}) for size in eager])
        return best.kwargs["size"], asked

    return run


def test_short_calls_are_tuned_as_a_graph_so_that_a_second_launch_does_not_decide(stopwatch):
    assert stopwatch({1: 0.03, 2: 0.05}, {1: 0.028, 2: 0.020}) == (2, [1, 2])


def test_long_calls_are_tuned_one_by_one_with_a_cold_cache(stopwatch):
    assert stopwatch({1: 2.0, 2: 1.9}, {}) == (2, [])

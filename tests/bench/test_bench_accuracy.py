"""How two engines' logits are compared."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import accuracy


@pytest.fixture
def reference() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((100, 50)).astype(np.float32)


def test_equal_logits_differ_in_nothing(reference: np.ndarray) -> None:
    found = accuracy.compare(reference, reference + np.float32(3))  # a shift is no difference
    assert found["kl"].shape == (100 - accuracy.SKIPPED,)
    assert np.abs(found["kl"]).max() < 1e-6 and found["error"].max() < 1e-5 and found["same"].all()


def test_divergence_is_that_of_the_distributions(reference: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    other = reference + np.random.default_rng(1).standard_normal(reference.shape).astype(np.float32)
    found = accuracy.compare(reference, other)
    p, q = (torch.tensor(x[accuracy.SKIPPED :]).double().log_softmax(1) for x in (reference, other))
    expected = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(1)
    assert np.allclose(found["kl"], expected.numpy(), rtol=1e-6)
    assert 0 < found["same"].mean() < 1

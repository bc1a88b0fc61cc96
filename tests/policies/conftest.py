import pytest
import torch


@pytest.fixture
def float64():
    """Float64 throughout, aggregation weights included."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)

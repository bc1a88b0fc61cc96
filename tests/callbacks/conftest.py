import pytest


@pytest.fixture(autouse=True)
def _quiet_lightning(recwarn: pytest.WarningsRecorder) -> None:
    """Lightning warns of loaders with few workers, of batches it cannot measure and of short runs: none of it is ours."""
    import warnings

    for message in (".*does not have many workers.*", ".*is a wrapper.*", ".*`?batch_size`?.*", ".*number of training batches.*"):
        warnings.filterwarnings("ignore", message=message)

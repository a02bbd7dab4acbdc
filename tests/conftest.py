"""Settings that all tests share."""

from pathlib import Path

import pytest
import torch
from hypothesis import settings

# No deadline: how long one example takes says more about the machine than about the code.
settings.register_profile("upright", deadline=None)
settings.load_profile("upright")

# Tensors are small here: on a busy machine, threads that wait for each other only slow them down.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def made_up_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of made-up records and arrays, with the report of it in ``report``."""
    import made_up_page
    from upright.cli import main

    folder = made_up_page.results(tmp_path_factory.mktemp("results"))
    assert main(["report", str(folder), "--out", str(folder / "report")]) == 0
    return folder

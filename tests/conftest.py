"""Every shape annotation of the package is enforced while the tests run, at no cost to anyone else."""

from jaxtyping import install_import_hook

install_import_hook("vonet", "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def _same_dice():
    torch.manual_seed(0)

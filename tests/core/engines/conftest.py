from pathlib import Path

import pytest

from core.engines.embedded import EmbeddedModel
from jobs.models import MODELS_DIR, prepare

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.fixture(scope="session")
def artefact():
    """The embedded model's folder, made once per checkout."""
    return prepare(MODELS_DIR)


@pytest.fixture(scope="session")
def model(artefact):
    """The embedded model, loaded once."""
    return EmbeddedModel.load(artefact)


@pytest.fixture(scope="session")
def data():
    """The folder of public data sets beside the checkout."""
    if not DATA.exists():
        pytest.skip(f"the public data sets are not in {DATA}")
    return DATA

import numpy as np
import pytest
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from tests.backbones.small_models import FAMILIES, Built, build


@pytest.fixture(scope="session", params=FAMILIES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def backbone(built: Built) -> Backbone:
    return load_backbone(built.folder, device="cpu")


@pytest.fixture(scope="session")
def pages() -> list[Image.Image]:
    rng = np.random.default_rng(3)
    sizes = [(120, 160), (200, 90), (60, 60), (120, 160)]
    return [
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)) for width, height in sizes
    ]

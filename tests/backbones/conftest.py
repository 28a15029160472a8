from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image

from ridgerank.backbones.base import Backbone, Content
from ridgerank.backbones.load import load_backbone
from tests.backbones.small_models import FAMILIES, Built, build
from tests.backbones.small_text_models import CLASSES, build_text

TEXTS = [
    "Revenue\nThe revenue in 2023 was 12345. It was 67890 the year before.",
    "one word and another " * 20,
    "x",
    "",
]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small only wait for a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", params=[*FAMILIES, *CLASSES])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A model of each supported class: those that look at pages, then those that read text."""
    make = build_text if request.param in CLASSES else build
    return make(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def backbone(built: Built) -> Backbone:
    return load_backbone(built.folder, device="cpu")


@pytest.fixture(scope="session")
def images() -> list[Image.Image]:
    rng = np.random.default_rng(3)
    sizes = [(120, 160), (200, 90), (60, 60), (120, 160)]
    return [
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)) for width, height in sizes
    ]


@pytest.fixture(scope="session")
def pages(backbone: Backbone, images: list[Image.Image]) -> list[Content]:
    """Four pages of differing length, as the backbone reads them."""
    return list(TEXTS if backbone.reads_text else images)

import pytest
from PIL import Image, ImageDraw

from ridgerank.retrievers.encoders import MultiVectorEncoder, load_encoder
from tests.retrievers.small_encoders import Built, build


@pytest.fixture(scope="session")
def colqwen(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A ColQwen2 over Qwen2.5-VL, as the miniature's retrievers are."""
    return build("colqwen2 on 2.5", tmp_path_factory.mktemp("encoders") / "small-colqwen")


@pytest.fixture(scope="session")
def encoder(colqwen: Built) -> MultiVectorEncoder:
    return load_encoder(colqwen.folder, device="cpu")


@pytest.fixture(scope="session")
def pages() -> list[Image.Image]:
    """Three page images of different sizes."""
    images = []
    for number, size in enumerate([(200, 260), (260, 200), (120, 300)]):
        image = Image.new("RGB", size, "white")
        draw = ImageDraw.Draw(image)
        draw.text((10, 10), f"page {number}", fill="black")
        draw.rectangle((20, 60 + 20 * number, 100, 140), fill=["navy", "red", "green"][number])
        images.append(image)
    return images

"""A page image is resized once: by whoever reads it, as the processor would, or by the processor alone."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from transformers import BaseImageProcessor
from transformers.models.glm4v import image_processing_pil_glm4v as glm
from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics
from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from ridgerank.backbones.vision import Glm41V, Idefics3, Qwen25VL, SmolVLM, VisualBackbone
from ridgerank.documents.render import list_pages, page_from_image, render_pages
from ridgerank.page_sizing import PageSizing, PatchSizing
from ridgerank.records import Page

FAMILIES: dict[str, tuple[type[VisualBackbone], BaseImageProcessor]] = {
    "qwen2_5_vl": (Qwen25VL, qwen.Qwen2VLImageProcessorPil()),
    "glm4v": (Glm41V, glm.Glm4vImageProcessorPil()),
    "idefics3": (Idefics3, idefics.Idefics3ImageProcessorPil()),
    "smolvlm": (SmolVLM, SmolVLMImageProcessorPil()),
}
SIDES = st.integers(28, 6000)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> tuple[PageSizing, BaseImageProcessor]:
    """A small budget, so that the test's images are above it."""
    backbone, image_processor = FAMILIES[request.param]
    backbone.limit_pixels(image_processor, 300_000)
    return backbone.page_sizing(image_processor), image_processor


def pixels(image_processor: BaseImageProcessor, image: Image.Image) -> NDArray[np.float32]:
    """What the model sees."""
    values: NDArray[np.float32] = image_processor(images=[[image]], return_tensors="np")["pixel_values"]
    return values


def scan(width: int = 1100, height: int = 1500) -> Image.Image:
    """A page full of fine structure, on which any further resize shows."""
    generator = np.random.default_rng(0)
    values = generator.integers(0, 256, (height // 5, width // 5, 3), dtype=np.uint8)
    return Image.fromarray(np.kron(values, np.ones((5, 5, 1), dtype=np.uint8)))


@pytest.mark.parametrize(
    "size", [(1100, 1500), (1500, 1100), (540, 560), (300, 400), (900, 335), (3000, 110)]
)
def test_a_model_sees_one_resize_of_the_original(
    family: tuple[PageSizing, BaseImageProcessor], size: tuple[int, int]
) -> None:
    sizing, image_processor = family
    image = scan(*size)
    shown = page_from_image(image, "scan.png#1", max_pixels=sizing).image
    np.testing.assert_array_equal(pixels(image_processor, shown), pixels(image_processor, image))
    assert shown.width * shown.height <= max(sizing.max_pixels, 2 * 3000 * 110)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg"])
def test_image_files_are_resized_once(
    family: tuple[PageSizing, BaseImageProcessor], suffix: str, tmp_path: Path
) -> None:
    sizing, image_processor = family
    path = tmp_path / f"scan{suffix}"
    scan(1600, 2200).save(path)
    [page] = render_pages(list_pages([path]), max_pixels=sizing)
    assert isinstance(page, Page)
    with Image.open(path) as original:
        np.testing.assert_array_equal(
            pixels(image_processor, page.image), pixels(image_processor, original.convert("RGB"))
        )


@given(SIDES, SIDES, st.integers(30, 2000))
@settings(max_examples=300, deadline=None)
def test_patches_are_counted_as_qwen_and_glm_count_them(width: int, height: int, tokens: int) -> None:
    if max(width, height) > 200 * min(width, height):
        return
    largest = tokens * 28 * 28
    sizing = PatchSizing(largest, 3, (3136, largest), 28)
    assert (
        sizing.processed_size(width, height)
        == (qwen.smart_resize(height, width, 28, min_pixels=3136, max_pixels=largest)[::-1])
    )
    of_two = PatchSizing(largest // 2, 3, (12544, largest), 28, frames=2)
    assert (
        of_two.processed_size(width, height)
        == (glm.smart_resize(2, height, width, 2, 28, min_pixels=12544, max_pixels=largest)[::-1])
    )

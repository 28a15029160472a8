"""Small real things that several parts are tested with: a model folder, PDF files."""

import os
import time

if "PYTEST_XDIST_WORKER" in os.environ:  # one thread per worker: two workers of two threads each crawl
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile

os.environ["RIDGERANK_CACHE"] = tempfile.mkdtemp(prefix="ridgerank-tests-")  # not the user's own

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image, ImageDraw

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from tests.backbones.small_models import build

Pdf = Callable[..., Path]

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.register_profile("ci", settings.get_profile("unhurried"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "unhurried")


SLOW = {
    "backbones",
    "benchmarks",
    "cli",
    "experiments",
    "indexing",
    "integrations",
    "miniature",
    "scaleout",
    "serving",
}
"""Folders whose tests run whole models, servers or commands: `make test-fast` leaves them out."""
SLOW_FILES = {"test_calibrate.py"}
LONGEST = ("test_tutorial.py", "test_pipeline.py", "test_serve.py", "test_stress.py", "test_notebook.py")
"""Files that take longest are begun first, so that no worker is left with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and begin with the longest files."""
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).parts[0] in SLOW or item.path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2.5-VL of five layers, saved as a hub folder would be."""
    return build("qwen2_5_vl", tmp_path_factory.mktemp("model")).folder


@pytest.fixture(scope="session")
def small_backbone(model_folder: Path) -> Backbone:
    """That model, loaded, with a pixel budget that makes pages of some thirty visual positions."""
    return load_backbone(model_folder, device="cpu", max_pixels=30 * 28 * 28)


def write_pdf(path: Path, *, pages: int, seed: int = 0) -> Path:
    """A PDF whose pages all differ: a number and some bars. The same bytes whenever it is written."""
    generator = np.random.default_rng(seed)
    images = []
    for number in range(pages):
        image = Image.new("RGB", (200, 260), "white")
        draw = ImageDraw.Draw(image)
        draw.text((20, 20), f"{path.stem} {seed} page {number + 1}", fill="black")
        for place, height in enumerate(generator.integers(10, 150, 6).tolist()):
            draw.rectangle((20 + 28 * place, 240 - height, 40 + 28 * place, 240), fill="navy")
        images.append(image)
    path.parent.mkdir(parents=True, exist_ok=True)
    then = time.gmtime(0)
    images[0].save(path, save_all=True, append_images=images[1:], creationDate=then, modDate=then)
    return path


@pytest.fixture(scope="session")
def pdf() -> Pdf:
    """Writes PDFs."""
    return write_pdf


def refuse_listing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the system refuse to list folders of this name."""
    listed = os.listdir

    def refusing(folder: Path) -> list[str]:
        if folder.name == name:
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(os, "listdir", refusing)

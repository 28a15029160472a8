"""The positions before the page: the same for every page of a family, kept once beside a store."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ridgerank.backbones.load import load_backbone
from ridgerank.errors import StoreError
from ridgerank.store.codec import compress, encode_shared
from ridgerank.store.rows import read_shared, write_shared
from ridgerank.store.storage_setting import Keep, NumberFormat
from tests.backbones.small_models import build
from tests.backbones.small_text_models import build_text
from tests.store.pages import SHARED

BITS = NumberFormat(4, 4)


@pytest.mark.parametrize("family", ["glm4v", "idefics3", "smolvlm", "llama"])
def test_pages_of_every_family_start_with_the_shared_positions(family: str, tmp_path: Path) -> None:
    folder = (build_text if family == "llama" else build)(family, tmp_path).folder
    backbone = load_backbone(folder, device="cpu")
    shared = encode_shared(backbone, BITS, exit_layer=2)
    assert shared is not None
    random = np.random.default_rng(0)
    for width, height in ((64, 64), (300, 200)):
        image = Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        [prefix] = backbone.encode([f"page {width}" if backbone.reads_text else image], exit_layer=2)
        for part, once in ((prefix.keys, shared.keys), (prefix.values, shared.values)):
            torch.testing.assert_close(part[:, :, : shared.count], torch.from_numpy(once))
        packed = compress(prefix, Keep(), BITS, shared)
        assert packed.total == len(prefix.visual)
        assert int(packed.positions[0]) >= shared.count


def test_what_is_written_is_read_back_and_another_digest_is_refused(tmp_path: Path) -> None:
    digest = write_shared(str(tmp_path), SHARED)
    again = read_shared(str(tmp_path), digest)
    np.testing.assert_array_equal(again.keys, SHARED.keys)
    np.testing.assert_array_equal(again.values, SHARED.values)
    with pytest.raises(StoreError, match="damaged"):
        read_shared(str(tmp_path), "0" * 64)

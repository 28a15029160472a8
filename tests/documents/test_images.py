"""Images become pages as they look; what is broken, too large or not an image is refused."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ridgerank.documents import images as images_module
from ridgerank.documents.images import (
    MAX_JPEG_SCANS,
    count_frames,
    decode_image,
    normalize_image,
    read_image,
)
from ridgerank.errors import DocumentError
from tests.documents.sample_files import png_bomb

WHITE = (255, 255, 255)
ROOMY = 10**6


def _halves(mode: str, left: object, right: object, size: tuple[int, int] = (40, 20)) -> Image.Image:
    image = Image.new(mode, size, left)  # type: ignore[arg-type]
    image.paste(right, (size[0] // 2, 0, *size))  # type: ignore[arg-type]
    return image


def _close(image: Image.Image, at: tuple[int, int], colour: tuple[int, ...], *, within: int) -> bool:
    return bool(np.allclose(np.asarray(image)[at[1], at[0]], colour, atol=within))


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.jpeg", "a.tif", "a.tiff", "a.webp"])
def test_every_format_is_read_as_it_looks(tmp_path: Path, name: str) -> None:
    _halves("RGB", (255, 0, 0), (0, 0, 255)).save(tmp_path / name)
    assert count_frames(tmp_path / name) == 1
    image = read_image(tmp_path / name, 1, max_pixels=ROOMY)
    assert image.mode == "RGB"
    assert image.size == (40, 20)
    assert _close(image, (5, 10), (255, 0, 0), within=3)
    assert _close(image, (35, 10), (0, 0, 255), within=3)


def test_frames_of_a_tiff_are_pages(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (10 + number, 10), (number, 0, 0)) for number in range(5)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    assert count_frames(tmp_path / "a.tif") == 5
    read = [read_image(tmp_path / "a.tif", number, max_pixels=ROOMY) for number in (5, 1, 3)]
    assert [(image.width, image.getpixel((0, 0))) for image in read] == [
        (14, (4, 0, 0)),
        (10, (0, 0, 0)),
        (12, (2, 0, 0)),
    ]


@pytest.mark.parametrize("kind", ["MPO", "WEBP"], ids=["photo with previews", "animation"])
def test_of_a_photo_with_previews_or_an_animation_the_first_frame_is_the_page(
    tmp_path: Path, kind: str
) -> None:
    frames = [Image.new("RGB", (32, 16), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a", format=kind, save_all=True, append_images=frames[1:], lossless=True)
    assert count_frames(tmp_path / "a") == 1
    assert _close(read_image(tmp_path / "a", 1, max_pixels=ROOMY), (4, 4), (255, 0, 0), within=3)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif", "a.webp"])
def test_images_are_turned_as_their_exif_says(tmp_path: Path, name: str) -> None:
    image = _halves("RGB", (250, 0, 0), (0, 0, 250))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter clockwise: what is left comes to the top
    image.save(tmp_path / name, exif=exif, icc_profile=b"x" * 1000)
    read = read_image(tmp_path / name, 1, max_pixels=ROOMY)
    assert (read.size, read.info) == ((20, 40), {})  # nothing else travels with the page
    assert _close(read, (10, 5), (250, 0, 0), within=12)
    assert _close(read, (10, 35), (0, 0, 250), within=12)


def _transparent_palette() -> Image.Image:
    image = _halves("P", 0, 1)
    image.putpalette([0, 0, 0, 255, 0, 0])
    image.info["transparency"] = 0
    return image


@pytest.mark.parametrize(
    ("image", "left", "right"),
    [
        (_halves("RGBA", (0, 0, 0, 0), (255, 0, 0, 255)), WHITE, (255, 0, 0)),
        (_halves("LA", (0, 0), (0, 255)), WHITE, (0, 0, 0)),
        (_transparent_palette(), WHITE, (255, 0, 0)),
        (_halves("1", 0, 1), (0, 0, 0), WHITE),
        (_halves("CMYK", (0, 0, 0, 0), (0, 255, 255, 0)), WHITE, (255, 0, 0)),
        (_halves("I;16", 0, 65535), (0, 0, 0), WHITE),
        (_halves("I", 257 * 30, 257 * 200), (30, 30, 30), (200, 200, 200)),
        (_halves("I", -1000, 1_000_000), (0, 0, 0), WHITE),
        (_halves("F", 0.0, 1.0), (0, 0, 0), WHITE),
        (_halves("F", float("nan"), 255.0), (0, 0, 0), WHITE),
    ],
    ids=lambda value: value.mode if isinstance(value, Image.Image) else "",
)
def test_every_mode_becomes_rgb_on_white(
    image: Image.Image, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    page = normalize_image(image)
    assert page.mode == "RGB"
    assert page.size == image.size
    assert _close(page, (5, 10), left, within=1)
    assert _close(page, (35, 10), right, within=1)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif"])
def test_large_images_come_just_within_the_budget_and_small_ones_as_they_are(
    tmp_path: Path, name: str
) -> None:
    _halves("RGB", (255, 0, 0), (0, 0, 255), size=(800, 600)).save(tmp_path / name)
    image = read_image(tmp_path / name, 1, max_pixels=12_000)
    assert 12_000 - sum(image.size) < image.width * image.height <= 12_000
    assert _close(image, (5, 50), (255, 0, 0), within=3)
    assert read_image(tmp_path / name, 1, max_pixels=800 * 600).size == (800, 600)


@pytest.mark.parametrize("side", [13_000, 100_000])
def test_bombs_are_refused_before_anything_is_decoded(
    tmp_path: Path, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(png_bomb(side))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(DocumentError, match="scale it down"):
        count_frames(tmp_path / "a.png")


def test_a_bomb_behind_the_first_frame_and_too_many_frames_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [Image.new("L", (10, 10)), Image.new("L", (100, 100))]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    monkeypatch.setattr(images_module, "MAX_IMAGE_PIXELS", 5000)
    assert read_image(tmp_path / "a.tif", 1, max_pixels=ROOMY).size == (10, 10)
    with pytest.raises(DocumentError, match="100 x 100, above 5,000 pixels"):
        read_image(tmp_path / "a.tif", 2, max_pixels=ROOMY)
    monkeypatch.setattr(images_module, "MAX_DOCUMENT_PAGES", 1)
    with pytest.raises(DocumentError, match="2 frames, more than 1"):
        count_frames(tmp_path / "a.tif")


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.webp"])
def test_a_truncated_image_is_a_broken_image(tmp_path: Path, name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(DocumentError) as caught:
        read_image(tmp_path / name, 1, max_pixels=ROOMY)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"hello", b"%PDF-1.7\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"GIF89a"])
def test_what_is_no_page_image_is_refused_whatever_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DocumentError, match="not a PNG, JPEG, TIFF or WebP"):
        count_frames(tmp_path / "a.png")


def test_a_broken_tiff_writes_nothing_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    written = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(written, "TIFF", compression="tiff_lzw")
    content = bytearray(written.getvalue())
    content[10:60] = bytes(byte ^ 0x55 for byte in content[10:60])
    with pytest.raises(DocumentError, match="a broken image"):
        decode_image(bytes(content))
    assert capfd.readouterr().err == ""


def jpeg(*, progressive: bool, comment: bytes = b"") -> bytes:
    encoded = io.BytesIO()
    image = Image.effect_noise((64, 64), 50).convert("RGB")
    image.save(encoded, "JPEG", progressive=progressive, comment=comment)
    return encoded.getvalue()


def many_scans(scans: int) -> bytes:
    """A progressive file whose last scan is there again and again."""
    data = jpeg(progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + b"\xff\xd9"


def test_a_file_of_many_scans_is_refused_and_metadata_that_looks_like_scans_is_not() -> None:
    for data in (jpeg(progressive=True), jpeg(progressive=False, comment=b"\xff\xda" * 500), many_scans(30)):
        assert decode_image(data).size == (64, 64)
    for scans in (MAX_JPEG_SCANS, 5000):
        with pytest.raises(DocumentError, match="scans"):
            decode_image(many_scans(scans))

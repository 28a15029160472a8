"""A text drawn on a page, for a model that looks at pages.

Pillow's own font has the letters of English. Other characters are drawn with the first installed font that
has all of them; where none has, the text is refused: boxes in place of letters would look alike whatever the
text says.
"""

import os
import sys
import textwrap
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from ridgerank.errors import DocumentError

MARGIN = 50
_PAPER = (850, 1100)
_FONT_PIXELS = 18
_COLUMNS = 84
_LINES = 44
_SHOWN_CHARACTERS = 10
_NOT_CHARACTERS = ("\U0010fffe", "\U0001fffe")
"""Code points that no font has: a font draws the same mark for every character that it lacks."""

Font = ImageFont.FreeTypeFont


def draw_text(text: str) -> Image.Image:
    """Draw a text, black on white, lines wrapped; a text that does not fit or has no font is refused."""
    cleaned = _drop_invisible(text)
    font = choose_font(frozenset(character for character in cleaned if not character.isspace()))
    lines = [
        line
        for paragraph in cleaned.splitlines()
        for wrapped in textwrap.wrap(paragraph, _COLUMNS) or [""]
        for line in _fit_width(wrapped, font)
    ]
    if len(lines) > _LINES:
        raise DocumentError(
            f"a text of {len(lines)} lines of {_COLUMNS} characters, more than the {_LINES} of a page; "
            "send less of it"
        )
    image = Image.new("RGB", _PAPER, "white")
    ImageDraw.Draw(image).multiline_text((MARGIN, MARGIN), "\n".join(lines), fill="black", font=font)
    return image


def choose_font(characters: frozenset[str]) -> Font:
    """Pillow's own font where it has all characters, else the first installed font that has them."""
    default = _default_font()
    missing = find_missing(default, characters)
    if not missing:
        return default
    for path in _installed_fonts():
        font = _load_font(path)
        if font is not None and not find_missing(font, missing) and not find_missing(font, characters):
            return font
    shown = ", ".join(f"{each} (U+{ord(each):04X})" for each in sorted(missing)[:_SHOWN_CHARACTERS])
    raise DocumentError(
        f"a text with characters that no installed font has all of: {shown}; install a font that has them "
        "(Noto, for instance), or send an image of the page"
    )


def find_missing(font: Font, characters: frozenset[str]) -> frozenset[str]:
    """The characters for which a font draws what it draws for a character that it lacks."""
    marks = {_glyph(font, character) for character in _NOT_CHARACTERS}
    return frozenset(character for character in characters if _glyph(font, character) in marks)


def _glyph(font: Font, character: str) -> tuple[tuple[int, int], float, bytes]:
    mask = font.getmask(character)
    return mask.size, font.getlength(character), bytes(mask)


def _drop_invisible(text: str) -> str:
    """Composed letters, plain blanks, and nothing that is never drawn (joiners, marks of byte order)."""
    composed = unicodedata.normalize("NFC", text)
    return "".join(
        " " if unicodedata.category(character) == "Zs" else character
        for character in composed
        if unicodedata.category(character) not in ("Cf", "Cc")
        or character in "\n\t\r\x0b\x0c\x1c\x1d\x1e\x85"
    )


def _fit_width(line: str, font: Font) -> Iterator[str]:
    """A line cut where it would run over the edge of the page."""
    width = _PAPER[0] - 2 * MARGIN
    while font.getlength(line) > width:
        end = max(1, int(len(line) * width / font.getlength(line)))
        while end > 1 and font.getlength(line[:end]) > width:
            end -= 1
        blank = line.rfind(" ", 1, end + 1)
        cut = blank if blank > 0 else end
        yield line[:cut]
        line = line[cut:].lstrip(" ")
    yield line


@lru_cache(maxsize=1)
def _default_font() -> Font:
    font = ImageFont.load_default(_FONT_PIXELS)
    if not isinstance(font, Font):
        raise DocumentError("a text cannot be drawn: this Pillow was built without FreeType")
    return font


@lru_cache(maxsize=64)
def _load_font(path: Path) -> Font | None:
    try:
        return ImageFont.truetype(path, _FONT_PIXELS)
    except OSError:  # a font of pictures, or a broken one
        return None


@lru_cache(maxsize=1)
def _installed_fonts() -> tuple[Path, ...]:
    """Font files of this machine and of installed packages, plain ones before bold and slanted ones."""
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    folders = [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), home / "fonts"]
    if sys.platform == "darwin":
        folders += [Path("/System/Library/Fonts"), Path("/Library/Fonts")]
    for package, part in (("matplotlib", "mpl-data/fonts/ttf"), ("reportlab", "fonts")):
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            folders.append(Path(spec.origin).parent / part)
    files = (path for folder in folders for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
    return tuple(sorted(files, key=lambda path: (any(word in path.stem for word in _STYLES), str(path))))


_SUFFIXES = (".ttf", ".otf", ".ttc")
_STYLES = ("Bold", "Oblique", "Italic", "Condensed", "Mono", "Light", "Serif", "Math")

"""Why a page ranks where it does: which of its kept positions the query attended to, and a picture of it.

- **A model that reads the image.** The attention of the query's last position, whose state is scored. A
  position is a part of the image.
- **A model that reads text.** The attention of the query's own tokens, on average: the last position looks at
  what the others have gathered. A position is a token, and lines are made of tokens. Such models put much
  attention on a token or two, whatever the query is. These are known by the attention of a prompt without
  any query, and count as part of the instruction.

Attention says where the model looked, not what it concluded: the readout decides on all of the state.
"""

import io
import logging
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from ridgerank.backbones.text import CausalText
from ridgerank.documents.ocr import find_words
from ridgerank.documents.text import BoxedWord, surround
from ridgerank.errors import BackboneError, DocumentError, ExtraMissing, StoreError
from ridgerank.processes import IsolatedProcess, TookTooLong, WorkerDied
from ridgerank.ragged import Bools, Floats
from ridgerank.records import Explanation, Passage, Region, State
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import StoredPage
from ridgerank.store.sidecar import source_files

log = logging.getLogger(__name__)

QUERY_INDEPENDENT = 0.05
"""A token with this share of the page's attention without any query has it whatever the query is."""
HEAT = (230, 60, 0)
STRONGEST = 170
"""Opacity, of 255, of the part looked at most: what is printed there stays readable."""
_READING_SECONDS = 60.0
"""How long the words of a page may take to find; OCR takes some seconds."""
_FIELD_SIDE = 96
"""Points along the longer side at which the heat of an image is computed; between them it is interpolated."""
_WIDTH = 0.55
"""Standard deviation of a position's heat, in mean distances between kept positions."""


def explain(
    shallow: ShallowPass, query: str, page_id: str, reader: IsolatedProcess, *, layer: int | None = None
) -> Explanation:
    """Attention over a stored page at one of the stored layers, or its mean over all of them.

    `reader` is the process that parses the page's document, where words have to be found on it.
    """
    store, backbone = shallow.store, shallow.backbone
    end = store.lineage.storage.exit_layer
    if layer is not None and not 0 <= layer < end:
        raise BackboneError(f"layer {layer} of a store that holds layers 0 to {end - 1}; take one of these")
    layers = (0, end) if layer is None else (layer, layer + 1)
    chosen = slice(*layers)
    state: State = "mean" if backbone.reads_text else "last"
    page, weights, instruction_share, query_share = _look(shallow, query, page_id, chosen, state=state)
    if backbone.reads_text:
        _, idle, _, _ = _look(shallow, "", page_id, chosen, state=state)
        ignores_query: Bools = idle > QUERY_INDEPENDENT * idle.sum()
        instruction_share += float(weights[ignores_query].sum())
        weights = np.where(ignores_query, 0.0, weights)
    kept, reference = page.cells.tolist(), store.reference(page_id)
    [stored] = store.pages([page_id])
    regions: list[Region | None]
    passages: tuple[Passage, ...] = ()
    if isinstance(backbone, CausalText):
        read_spans = backbone.text_spans(stored.text)
        spans = [read_spans[index] for index in kept]
        words = _place_words(shallow, stored, reader)
        regions = token_regions(spans, words)
        passages = split_passages(stored.text, spans, weights.tolist(), words)
    else:
        if not stored.thumbnail:
            lack = "was stored without a thumbnail, so its shape is unknown; index its document again"
            raise StoreError(f"{reference} {lack}")
        with Image.open(io.BytesIO(stored.thumbnail)) as image:
            cells = backbone.regions(page.grid, image.width / image.height)[kept]
        regions = [(left, top, right, bottom) for left, top, right, bottom in cells.tolist()]
    return Explanation(
        query=query,
        page_id=page_id,
        reference=reference,
        layers=layers,
        grid=page.grid,
        kept=tuple(kept),
        weights=tuple(weights.tolist()),
        regions=tuple(regions),
        page_share=float(weights.sum()),
        instruction_share=instruction_share,
        query_share=query_share,
        passages=passages,
    )


def _look(
    shallow: ShallowPass, query: str, page_id: str, layers: slice, *, state: State
) -> tuple[PackedPrefix, Floats, float, float]:
    """A stored page, the attention (kept,) on its positions, and the shares of instruction and query."""
    attention, page = shallow.attend(query, page_id, state=state)
    weights = attention[layers].double().mean(dim=0).cpu().numpy()
    visual = np.concatenate([np.zeros(page.shared_count, dtype=np.bool_), page.visual])
    over_prefix, over_suffix = weights[: len(visual)], weights[len(visual) :]
    # The suffix opens with the instruction's last token.
    instruction_share = float(over_prefix[~visual].sum() + over_suffix[0])
    return page, over_prefix[visual], instruction_share, float(over_suffix[1:].sum())


def _place_words(shallow: ShallowPass, page: StoredPage, reader: IsolatedProcess) -> tuple[BoxedWord, ...]:
    """The page's words with their boxes; none if its document is gone, or cannot be read any more."""
    files = source_files(shallow.store.uri, [page])
    try:
        return reader.call(find_words, _READING_SECONDS, files, page.page_id, page.text)
    except (DocumentError, ExtraMissing, OSError, MemoryError, TookTooLong, WorkerDied) as error:
        log.warning("%s: no word can be shown on the page: %s", (*page.references, page.page_id)[0], error)
    return ()


Span = tuple[int, int]
"""First character in the text, and one past the last."""


def token_regions(spans: Sequence[Span], words: Sequence[BoxedWord]) -> list[Region | None]:
    """The box of the word that each token is part of; None for white space and for words without a place."""
    regions: list[Region | None] = []
    first = 0
    for start, end in spans:
        while first < len(words) and words[first].end <= start:
            first += 1
        inside = first < len(words) and words[first].start < end
        regions.append(_region(words[first : first + 1]) if inside else None)
    return regions


def split_passages(
    text: str, spans: Sequence[Span], weights: Sequence[float], words: Sequence[BoxedWord]
) -> tuple[Passage, ...]:
    """The lines of the text that the model read, top to bottom, each with the attention on its tokens."""
    passages: list[Passage] = []
    token = word = start = 0
    for line in text.splitlines(keepends=True):
        end = start + len(line)
        attention, read = 0.0, False
        while token < len(spans) and spans[token][0] < end:
            attention += weights[token]
            read = read or spans[token][1] > start
            token += 1
        first = word
        while word < len(words) and words[word].start < end:
            word += 1
        if read and line.strip():
            passages.append(Passage(line.strip(), attention, _region(words[first:word])))
        start = end
    return tuple(passages)


def _region(words: Sequence[BoxedWord]) -> Region | None:
    """The smallest box around some words."""
    if not words:
        return None
    box = surround([word.box for word in words])
    return box.left, box.top, box.right, box.bottom


def draw_heatmap(image: Image.Image, explanation: Explanation) -> Image.Image:
    """A copy of the page with translucent heat, strongest where the query looked most.

    Where the model reads the image, heat is the mean of the positions around a point, the nearer the more:
    positions that were not kept take it from their neighbours. Where it reads text, each word has the heat of
    its own tokens together.
    """
    heated = image.convert("RGB")
    opacity = _word_opacity(image.size, explanation) if explanation.passages else None
    heated.paste(HEAT, mask=opacity or _smooth_opacity(image.size, explanation))
    return heated


def _word_opacity(size: tuple[int, int], explanation: Explanation) -> Image.Image:
    opacity = Image.new("L", size)
    canvas = ImageDraw.Draw(opacity)
    words: dict[Region, float] = {}
    for weight, word in zip(explanation.weights, explanation.regions, strict=True):
        if word is not None:
            words[word] = words.get(word, 0.0) + weight
    highest = max(words.values(), default=0.0) or 1.0
    for region, weight in words.items():
        left, top, right, bottom = (edge * side for edge, side in zip(region, size * 2, strict=True))
        fill = round(STRONGEST * weight / highest)
        canvas.rounded_rectangle((left, top, right, bottom), radius=(bottom - top) / 5, fill=fill)
    return opacity


def _smooth_opacity(size: tuple[int, int], explanation: Explanation) -> Image.Image:
    scale = _FIELD_SIDE / max(size)
    columns, rows = (max(1, round(side * scale)) for side in size)
    field = smooth_field(explanation, columns, rows)
    levels = np.rint(STRONGEST * field / (field.max() or 1.0)).astype(np.uint8)
    return Image.fromarray(levels).resize(size, Image.Resampling.BICUBIC)


def smooth_field(explanation: Explanation, columns: int, rows: int) -> Floats:
    """(rows, columns): Σ g(x − xᵢ) aᵢ / Σ g(x − xᵢ), xᵢ kept positions with attention aᵢ, g a Gaussian."""
    kept = [
        (weight, region)
        for weight, region in zip(explanation.weights, explanation.regions, strict=True)
        if region is not None
    ]
    if not kept:
        return np.zeros((rows, columns))
    weights = np.array([weight for weight, _ in kept])
    left, top, right, bottom = np.array([region for _, region in kept]).T
    x, y = (left + right) / 2 * columns, (top + bottom) / 2 * rows
    width = _WIDTH * np.sqrt(columns * rows / len(kept))
    near_x = np.exp(-(((np.arange(columns) + 0.5)[:, None] - x) ** 2) / (2 * width**2))
    near_y = np.exp(-(((np.arange(rows) + 0.5)[:, None] - y) ** 2) / (2 * width**2))
    field: Floats = (near_y * weights) @ near_x.T / np.maximum(near_y @ near_x.T, 1e-9)
    return field

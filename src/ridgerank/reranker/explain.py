"""Why a page stands where it stands: which of its kept positions the query attended to.

- **A model that reads the image.** The attention of the query's last position, whose state is scored. A
  position is a part of the image.
- **A model that reads text.** The attention of the query's own tokens, on average: the last position looks at
  what the others have gathered. A position is a token, and lines are made of tokens. Such
  models park attention they have no use for on a token or two, whatever the query is. These are known by
  the attention of a prompt without any query, and count as part of the instruction.

Attention says where the model looked, not what it concluded: the readout decides on all of the state.
"""

import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from ridgerank.backbones.text import CausalText
from ridgerank.documents.ocr import place_words
from ridgerank.documents.text import BoxedWord
from ridgerank.errors import DocumentError, StoreError
from ridgerank.ragged import Bools, Floats
from ridgerank.records import Explanation, Passage, Region, State
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.rerender import locate_pages
from ridgerank.store.rows import StoredPage

log = logging.getLogger(__name__)

PARKED = 0.05
"""A token with this share of the page's attention where there is no query has it whatever the query is."""


def explain(shallow: ShallowPass, query: str, page_id: str, *, layer: int | None = None) -> Explanation:
    """Attention over a stored page at one of the stored layers, or its mean over all of them."""
    lineage = shallow.store.lineage
    end = lineage.exit_layer
    if layer is not None and not 0 <= layer < end:
        raise StoreError(f"layer {layer} of a store that holds layers 0 to {end - 1}; ask for one of these")
    layers = (0, end) if layer is None else (layer, layer + 1)
    chosen = slice(*layers)
    reads_text = shallow.backbone.reads_text
    looked = _look(shallow, query, page_id, chosen, state="mean" if reads_text else "last")
    weights, parked = looked.weights, 0.0
    if reads_text:
        idle = _look(shallow, "", page_id, chosen, state="mean").weights
        is_parked: Bools = idle > PARKED * idle.sum()
        parked = float(weights[is_parked].sum())
        weights = np.where(is_parked, 0.0, weights)
    kept = looked.page.cells.tolist()
    regions, passages = _locate(shallow, page_id, looked.page.grid, kept, weights.tolist())
    return Explanation(
        query=query,
        page_id=page_id,
        reference=shallow.store.reference(page_id),
        layers=layers,
        grid=looked.page.grid,
        kept=tuple(kept),
        weights=tuple(weights.tolist()),
        regions=regions,
        page_share=float(weights.sum()),
        instruction_share=looked.instruction_share + parked,
        query_share=looked.query_share,
        passages=passages,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Attention on one page, averaged over layers."""

    page: PackedPrefix
    weights: Floats
    """(kept,): on each position of the page."""
    instruction_share: float
    query_share: float


def _look(shallow: ShallowPass, query: str, page_id: str, layers: slice, *, state: State) -> _Look:
    attention, page = shallow.attend(query, page_id, state=state)
    over_prefix = attention.over_prefix[layers, 0].double().mean(dim=0).cpu().numpy()
    over_suffix = attention.over_suffix[layers, 0].double().mean(dim=0).cpu().numpy()
    visual = np.concatenate([np.zeros(page.shared_count, dtype=np.bool_), page.visual])
    return _Look(
        page=page,
        weights=over_prefix[visual],
        # The suffix opens with the instruction's last token.
        instruction_share=float(over_prefix[~visual].sum() + over_suffix[0]),
        query_share=float(over_suffix[1:].sum()),
    )


def _locate(
    shallow: ShallowPass, page_id: str, grid: tuple[int, int], kept: Sequence[int], weights: Sequence[float]
) -> tuple[tuple[Region | None, ...], tuple[Passage, ...]]:
    """Where each kept position lies on the page; of a model that reads text, also the lines they are in."""
    [page] = shallow.store.pages([page_id])
    if not isinstance(shallow.backbone, CausalText):
        cells = shallow.backbone.regions(grid, _aspect(page, shallow.store.reference(page_id)))[kept]
        return tuple((left, top, right, bottom) for left, top, right, bottom in cells.tolist()), ()
    read_spans = shallow.backbone.text_spans(page.text)
    spans = [read_spans[index] for index in kept]
    words = _place_words(shallow, page_id, page.text)
    return tuple(token_regions(spans, words)), split_passages(page.text, spans, weights, words)


def _place_words(shallow: ShallowPass, page_id: str, text: str) -> tuple[BoxedWord, ...]:
    """The page's words with their boxes; none where its document is gone, or cannot be read any more."""
    for location in locate_pages(shallow.store, [page_id]):
        try:
            return place_words(location.ref, text)
        except (DocumentError, OSError) as error:
            log.warning("%s: no word can be shown on the page: %s", location.ref.reference, error)
    return ()


def _aspect(page: StoredPage, reference: str) -> float:
    """The page's width over its height, by its thumbnail."""
    if not page.thumbnail:
        raise StoreError(
            f"{reference} was stored without a thumbnail, so its shape is unknown; index its document again"
        )
    with Image.open(io.BytesIO(page.thumbnail)) as image:
        return image.width / image.height


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
    boxes = [word.box for word in words]
    return (
        min(box.left for box in boxes),
        min(box.top for box in boxes),
        max(box.right for box in boxes),
        max(box.bottom for box in boxes),
    )

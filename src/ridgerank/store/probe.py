"""The probe of a store: what its model said of a few stored pages, to tell whether another one is the same.

Weights whose sampled values are equal are the same model, whatever release, precision or device runs it.
Else the probe decides: two queries over eight stored pages, whose states are compared with those kept when
the store was made. Raw states share large components and prove nothing, so scores along seeded random
directions are compared, centred per list; readout files compare theirs by the same rule.
"""

import json
import logging
from dataclasses import dataclass, replace

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ridgerank.backbones.base import Backbone
from ridgerank.errors import LineageMismatch, StoreError
from ridgerank.ragged import Floats
from ridgerank.records import Page
from ridgerank.store import layout
from ridgerank.store.codec import StoredPrefixes, compress, even_indices
from ridgerank.store.lance_dataset import read_file, write_file
from ridgerank.store.layout import PackedPrefix
from ridgerank.store.page_store import PageStore
from ridgerank.store.sidecar import locate_pages, render_locations

log = logging.getLogger(__name__)

PROBED_PAGES = 8
PROBE_QUERIES = ("What is shown in the table?", "Who is responsible for the results of the last year?")
LEAST_CORRELATION = 0.99
LEAST_SAME = 0.9
"""Of a page that is encoded again: the share of its positions, and the correlation of its numbers."""
NEAR_TIE = 0.6
"""Pages closer than this, in standard deviations of their list, may change places. In bfloat16 pages as close
change theirs; noise of 1 % of each tensor's deviation does so up to 0.44 (docs/storage.md)."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How far two sets of scores agree."""

    correlation: float
    """Of all scores, centred per list."""
    swapped: int
    """Pairs of pages in another order, near ties aside."""

    @property
    def accepted(self) -> bool:
        """Whether the scores are those of one model."""
        return self.correlation >= LEAST_CORRELATION and not self.swapped

    def __str__(self) -> str:
        return (
            f"the probe's scores correlate at {self.correlation:.4f} (expected at least "
            f"{LEAST_CORRELATION}), and {self.swapped} pairs of pages that are no near ties are in another "
            "order (expected 0)"
        )


def center_scores(scores: Floats) -> Floats:
    """(lists, pages): the mean of every list is 0."""
    centred: Floats = scores - scores.mean(axis=1, keepdims=True)
    return centred


def compare_scores(stored: Floats, found: Floats) -> ProbeResult:
    """Compare scores (lists, pages) that were stored with those found here."""
    first, second = center_scores(stored), center_scores(found)
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    correlation = float((first * second).sum()) / norm if norm > 0 else 0.0
    gaps, found_gaps = (each[:, :, None] - each[:, None, :] for each in (first, second))
    apart = np.abs(gaps) > NEAR_TIE * first.std(axis=1)[:, None, None]
    swapped = int((apart & (gaps * found_gaps < 0)).sum()) // 2
    return ProbeResult(correlation if np.isfinite(correlation) else 0.0, swapped)


def write_probe(store: PageStore, backbone: Backbone) -> None:
    """Keep what the model says of some pages beside their store, unless that was done before."""
    if read_file(store.uri, layout.PROBE) is not None:
        return
    pending = store.pending()
    all_pages = [page_id for page_id in store.page_ids() if page_id not in pending]
    if len(all_pages) < 2:
        return
    page_ids = [all_pages[row] for row in even_indices(len(all_pages), min(PROBED_PAGES, len(all_pages)))]
    states = _run(store, backbone, page_ids).astype(np.float32)
    content = save({"states": states}, metadata={"page_ids": json.dumps(page_ids)})
    write_file(store.uri, layout.PROBE, content)


def read_probe(uri: str) -> tuple[Floats, list[str]] | None:
    """What was kept beside a store: states (queries, pages, width), and the pages; None if there is none."""
    content = read_file(uri, layout.PROBE)
    if content is None:
        return None
    try:
        states = load(content)["states"].astype(np.float64)
        length = int.from_bytes(content[:8], "little")
        page_ids = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["page_ids"])
        return states.reshape(len(PROBE_QUERIES), len(page_ids), -1), page_ids
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{layout.PROBE} of {uri} is damaged ({error}); remove it") from error


def run_probe(store: PageStore, backbone: Backbone) -> ProbeResult | None:
    """Compare what the model says of the store's probed pages; None without a probe, or without its pages."""
    if (kept := read_probe(store.uri)) is None:
        return None
    states, page_ids = kept
    rows = [row for row, page_id in enumerate(page_ids) if page_id in store]
    if len(rows) < 2:
        return None
    found = _run(store, backbone, [page_ids[row] for row in rows])
    # The same for every model of this width: most stores have no readout yet.
    directions = np.random.default_rng(0).normal(size=(16, states.shape[-1])) / np.sqrt(states.shape[-1])
    stored, here = (
        (each @ directions.T).transpose(2, 0, 1).reshape(-1, len(rows)) for each in (states[:, rows], found)
    )
    return compare_scores(stored, here)


def require_same_pages(store: PageStore, backbone: Backbone, *, processes: int) -> None:
    """Encode the first page again before others are added: another release may read it differently."""
    pending, storage = store.pending(), store.lineage.storage
    page_ids = [page_id for page_id in store.page_ids() if page_id not in pending][:1]
    locations = locate_pages(store, page_ids, processes=processes)
    pages = render_locations(locations, max_pixels=backbone.page_budget, processes=processes)
    page = next((page for page in list(pages) if isinstance(page, Page)), None)
    if page is None:
        return
    [prefix] = backbone.encode([backbone.content(page)], exit_layer=storage.exit_layer)
    [stored] = store.read_prefixes([page.page_id])
    here = compress(prefix, storage.keep, store.basis)
    _, there, same = np.intersect1d(
        stored.positions[stored.visual], here.positions[here.visual], return_indices=True
    )
    count, found = int(stored.visual.sum()), 0.0
    if len(same) and stored.total == here.total:
        first, second = (_numbers(each)[:, rows].ravel() for each, rows in ((stored, there), (here, same)))
        found = float(np.corrcoef(first, second)[0, 1])
    if count and not (found >= LEAST_SAME and len(same) >= LEAST_SAME * count):
        raise LineageMismatch(
            f"{page.reference} is not read here as when it was added to the page store at {store.uri}: "
            f"{len(same)} of {count} positions are the same, and their numbers correlate at "
            f"{found:.3f} (expected at least {LEAST_SAME} of both); index with what it was made with "
            f"({store.lineage.made_by}), or index into another store"
        )


def _numbers(page: PackedPrefix) -> Floats:
    """(numbers, positions) of the page: its codes, of a page in int8 those of its keys."""
    if page.basis is not None:
        return page.arrays["codes"][:, page.visual[: page.arrays["codes"].shape[1]]].astype(np.float64)
    keys = np.moveaxis(page.arrays["keys"], 2, -1)[..., page.visual].astype(np.float64)
    return keys.reshape(-1, keys.shape[-1])


def require_model(store: PageStore, backbone: Backbone) -> None:
    """Refuse a model that is not the one a store was made with."""
    here, there = backbone.lineage(store.lineage.storage), store.lineage
    if here.weights == there.weights:
        there.require(here, artifact=f"the page store at {store.uri}")
        return
    there.require(replace(here, weights=there.weights), artifact=f"the page store at {store.uri}")
    result = run_probe(store, backbone)
    if result is None or not result.accepted:
        reason = "it has no probe to compare them by" if result is None else str(result)
        raise LineageMismatch(
            f"the page store at {store.uri} was made with {there.backbone!r}, whose weights are not those of "
            f"{here.backbone!r}: {reason}; use the model it was made with, or index into another store"
        )
    log.info("%s: other weights than those it was made with were accepted: %s", store.uri, result)


def _run(store: PageStore, backbone: Backbone, page_ids: list[str]) -> Floats:
    """States (queries, pages, width) over stored pages."""
    prefixes = StoredPrefixes(store.read_prefixes(page_ids), device=backbone.device)
    states = [backbone.states([query], prefixes).double().cpu().numpy() for query in PROBE_QUERIES]
    return np.stack(states)

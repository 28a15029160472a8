"""A smaller store made of a larger one: fewer layers, positions or bits, without reading a page again.

What was dropped cannot be chosen again and what was rounded cannot be made finer: both are refused. Repacking
may be interrupted; run again, it goes on behind the last commit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ridgerank.errors import StoreError
from ridgerank.lineage import Lineage
from ridgerank.store.compress import average_distances, average_norms, layer_features, quantize
from ridgerank.store.layout import PackedPrefix, SharedPrefix
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_bytes import mean_page_bytes, sample_page_shapes
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import RULES, Keep, PageFeatures, even_indices
from ridgerank.store.quantize import PACKED_QUANTIZATION, QUANTIZATION
from ridgerank.store.rows import PageRow
from ridgerank.store.sidecar import copy_sources
from ridgerank.store.storage_setting import StorageSetting, stored_numbers
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.stored_prefixes import StoredPrefixes

_PAGES_PER_COMMIT = 32
_LAYER_RULES = ("value-norm", "value-distance", "spread")
"""Rules that choose by the values of the stored layers. They need neither the page's image nor its text."""


@dataclass(frozen=True, slots=True)
class RepackPlan:
    """What to make of a store; None leaves it as it is."""

    keep: Keep | None = None
    numbers: NumberFormat | None = None
    exit_layer: int | None = None

    def apply(self, lineage: Lineage) -> Lineage:
        """The lineage of the new store; what the old one no longer holds is refused."""
        with _naming_possible(lineage):
            return self._apply(lineage)

    def _apply(self, lineage: Lineage) -> Lineage:
        keep = self.keep or Keep.parse(lineage.keep)
        numbers = self.numbers or stored_numbers(lineage)
        exit_layer = lineage.exit_layer if self.exit_layer is None else self.exit_layer
        if not lineage.join_layer < exit_layer <= lineage.exit_layer:
            raise StoreError(
                f"exit layer {exit_layer} of a store with layers {lineage.join_layer} to "
                f"{lineage.exit_layer - 1}; name one above {lineage.join_layer}, at most {lineage.exit_layer}"
            )
        if numbers.key_bits > lineage.key_bits or numbers.value_bits > lineage.value_bits:
            raise StoreError(
                f"bits {numbers} of a store with {stored_numbers(lineage)}: what was rounded cannot be made "
                "finer; index the documents again"
            )
        _require_reachable(Keep.parse(lineage.keep), keep, cut=exit_layer < lineage.exit_layer)
        return replace(
            lineage,
            keep=str(keep),
            exit_layer=exit_layer,
            quantization=QUANTIZATION if numbers.symmetric else PACKED_QUANTIZATION,
            key_bits=numbers.key_bits,
            value_bits=numbers.value_bits,
            number_group=numbers.group,
        )


@dataclass(frozen=True, slots=True)
class RepackReport:
    """What repacking has done."""

    pages: int
    """Pages written now."""
    skipped: int
    """Pages that an earlier run had written."""
    bytes_per_page: tuple[float, float]
    """Before and after."""


def repack_store(
    source: str, target: str, plan: RepackPlan, *, shared: SharedPrefix | None = None
) -> RepackReport:
    """Write the pages of `source` to `target` as the plan says.

    `shared` are the positions before the page (`encode_shared`), for a source that stores them with every
    page; without them the new store does so, too.
    """
    if source.rstrip("/") == target.rstrip("/"):
        raise StoreError(f"{source} cannot be repacked into itself; name another folder or URL")
    with PageStore.open(source) as store:
        lineage = plan.apply(store.lineage)
        layers = lineage.exit_layer - lineage.join_layer
        if stored_numbers(lineage).symmetric:
            shared = None
        elif store.shared is not None:
            shared = store.shared
        if shared is not None:
            shared = SharedPrefix(shared.keys[:layers].copy(), shared.values[:layers].copy())
        _require_held_and_smaller(store, lineage, shared)
        with StoreWriter(target, lineage, shared) as writer:
            if store.vectors is not None:
                writer.open_vectors(store.vectors.origin)
            done = writer.page_ids()
            missing = [page_id for page_id in store.page_ids() if page_id not in done]
            for batch in _batches(missing):
                pages = store.pages(batch, vectors=True)
                prefixes = store.read_prefixes(batch)
                writer.append(
                    [
                        PageRow(page, _repack(prefix, lineage=lineage, old=store.lineage, shared=shared))
                        for page, prefix in zip(pages, prefixes, strict=True)
                    ]
                )
            writer.set_labels(store.labels())
        copy_sources(source, target)
        before = store.info().bytes_per_page
    with PageStore.open(target) as store:
        return RepackReport(len(missing), len(done), (before, store.info().bytes_per_page))


def can_repack(store: PageStore, plan: RepackPlan, page_ids: Sequence[str]) -> bool:
    """Whether the store still holds what the plan needs, tried on these pages, and pages do not grow."""
    try:
        lineage = plan.apply(store.lineage)
        _require_held_and_smaller(store, lineage, store.shared)
        for prefix in store.read_prefixes(page_ids):
            _repack(prefix, lineage=lineage, old=store.lineage, shared=None)
    except StoreError:
        return False
    return True


@contextmanager
def _naming_possible(lineage: Lineage) -> Iterator[None]:
    """Add to a refusal what can be made of the store with this lineage."""
    try:
        yield
    except StoreError as error:
        raise StoreError(f"{error}. From this store can be made: {describe_repacks(lineage)}") from error


def describe_repacks(lineage: Lineage) -> str:
    """The settings that a store with this lineage still holds, as one would type them."""
    keep, numbers = Keep.parse(lineage.keep), stored_numbers(lineage)
    kept, layers = f"--keep {lineage.keep!r}", f"--exit-layer {lineage.exit_layer}"
    if keep.fraction == 1:
        kept = f"--keep with any fraction by {', '.join(('stride', *_LAYER_RULES))}"
    elif keep.rule == "value-norm":
        kept += " or a smaller fraction"
    if (keep.fraction == 1 or keep.rule not in _LAYER_RULES) and lineage.exit_layer > lineage.join_layer + 1:
        layers += f" or lower, above {lineage.join_layer}"
    return f"{kept}; --bits of at most {numbers.key_bits}/{numbers.value_bits} (keys/values); {layers}"


def _require_held_and_smaller(store: PageStore, lineage: Lineage, shared: SharedPrefix | None) -> None:
    """Refuse what pages no longer hold, and what would make them larger, by the headers of some of them."""
    old, new = StorageSetting.from_lineage(store.lineage), StorageSetting.from_lineage(lineage)
    shapes = sample_page_shapes(store, 0 if shared is None else shared.count)
    if not shapes:
        return
    if new.keep != old.keep and new.keep.rule == old.keep.rule == "stride":
        with _naming_possible(store.lineage):
            for cells in sorted({shape.page_positions for shape in shapes}):
                _locate_even(new.keep, cells, even_indices(cells, old.keep.count(cells)))
    stored_count = 0 if store.shared is None else store.shared.count
    stored_shapes = [shape.with_before_page(stored_count) for shape in shapes]
    before = mean_page_bytes(stored_shapes, old, join_layer=lineage.join_layer)
    after = mean_page_bytes(shapes, new, join_layer=lineage.join_layer)
    if after > before:
        raise StoreError(
            f"{new} takes {after / 1e6:.3f} MB a page, and the store's {old} {before / 1e6:.3f} MB: "
            "pages would only grow; name fewer bits, larger groups or none, or keep the store as it is"
        )


def _batches(page_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(page_ids), _PAGES_PER_COMMIT):
        yield page_ids[start : start + _PAGES_PER_COMMIT]


def _require_reachable(old: Keep, new: Keep, *, cut: bool) -> None:
    """Refuse a choice of positions that the kept ones cannot give, as far as that is known beforehand."""
    if cut and old.fraction < 1 and old.rule in _LAYER_RULES:
        raise StoreError(
            f"{str(old)!r} chose positions by all stored layers: with fewer layers it would have chosen "
            "others; index the documents again"
        )
    if new == old:
        return
    if new.rule not in ("stride", *_LAYER_RULES):
        raise StoreError(f"the rule {new.rule!r} looks at the page itself; index the documents again")
    if old.fraction == 1:
        return
    if new.rule != old.rule or new.rule not in ("stride", "value-norm") or new.fraction > old.fraction:
        raise StoreError(
            f"keep {str(new)!r} of a store that kept {str(old)!r}: wanted positions were dropped; "
            "index the documents again, or keep a part of them by the same rule"
        )


def _repack(
    page: PackedPrefix, *, lineage: Lineage, old: Lineage, shared: SharedPrefix | None
) -> PackedPrefix:
    layers = lineage.exit_layer - lineage.join_layer
    keys, values = _restore(page, layers)
    before = np.arange(page.shared_count, dtype=np.int32)
    positions = np.concatenate([before, page.positions])
    visual = np.concatenate([np.zeros(len(before), dtype=np.bool_), page.visual])
    chosen = ~visual
    if lineage.keep == old.keep:
        chosen[:] = True
    else:
        chosen[np.flatnonzero(visual)[_choose(page, Keep.parse(lineage.keep), values[:, :, visual])]] = True
    if shared is not None:
        if visual[: shared.count].any() or not np.array_equal(
            positions[: shared.count], np.arange(shared.count)
        ):
            raise StoreError(f"a page that starts before position {shared.count}, where the prompt still is")
        chosen[: shared.count] = False
    numbers = stored_numbers(lineage)
    kept = torch.from_numpy(np.flatnonzero(chosen))
    return PackedPrefix(
        **quantize(keys.index_select(2, kept), values.index_select(2, kept), numbers),
        positions=positions[chosen],
        visual=visual[chosen],
        next_position=page.next_position,
        grid=page.grid,
        numbers=numbers,
        shared=shared,
    )


def _restore(page: PackedPrefix, layers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values (layers, kv_heads, positions, head_dim) of a page, shared positions included."""
    batch = StoredPrefixes.of([page], join_layer=0)
    shape = (layers, page.keys.shape[1], int(batch.lengths[0]), page.keys.shape[3])
    keys, values = torch.empty(shape), torch.empty(shape)
    for layer in range(layers):
        batch.fill(layer, keys[layer : layer + 1], values[layer : layer + 1])
    return keys, values


def _choose(page: PackedPrefix, keep: Keep, values: torch.Tensor) -> NDArray[np.int64]:
    """Which of the stored visual positions to keep; `values` are theirs."""
    held = page.cells
    count = keep.count(page.grid[0] * page.grid[1])
    if keep.rule == "stride":
        return _locate_even(keep, page.grid[0] * page.grid[1], held)
    features = PageFeatures(
        grid=(1, len(held)),
        grey=np.empty(0),
        features=layer_features(values),
        value_norms=average_norms(values),
        value_distances=average_distances(values),
    )
    return RULES[keep.rule](features, count)


def _locate_even(keep: Keep, cells: int, held: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the positions of an even stride over a page are among those held; all must be."""
    even_cells = even_indices(cells, keep.count(cells))
    dropped = np.setdiff1d(even_cells, held)
    if dropped.size:
        raise StoreError(
            f"keep {str(keep)!r}: {dropped.size} of the {even_cells.size} positions of a page were dropped "
            "when it was stored; index the documents again"
        )
    return np.searchsorted(held, even_cells)

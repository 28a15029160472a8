"""A smaller store out of a larger one holds what indexing with its settings would have stored."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ridgerank.backbones.base import Backbone
from ridgerank.errors import LineageMismatch, StoreError
from ridgerank.store import repack as repack_module
from ridgerank.store.check import find_damage
from ridgerank.store.compress import compress, encode_shared
from ridgerank.store.model_lineage import make_lineage
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.repack import RepackPlan, repack_store
from ridgerank.store.rows import PageRow
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import ORIGIN, assert_same, row

EXIT = 4


def write(backbone: Backbone, uri: Path, keep: str, bits: str) -> str:
    """A store of five random pages."""
    numbers, rule = NumberFormat.parse(bits), Keep.parse(keep)
    shared = encode_shared(backbone, numbers, exit_layer=EXIT, join_layer=0)
    lineage = make_lineage(backbone, exit_layer=EXIT, join_layer=0, keep=rule, numbers=numbers)
    random = np.random.default_rng(0)
    with StoreWriter(str(uri), lineage, shared) as writer:
        for number in range(5):
            image = Image.fromarray(random.integers(0, 256, (84 + 28 * number, 140, 3), dtype=np.uint8))
            [prefix] = backbone.encode([image], exit_layer=EXIT)
            writer.append([PageRow(row(number).page, compress(prefix, image, rule, numbers, shared))])
    return str(uri)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stride 1", "stride 1/3"),
        ("stride 1", "value-norm 1/3"),
        ("stride 1", "value-distance 1/3"),
        ("stride 1", "spread 1/3"),
        ("value-norm 1/2", "value-norm 1/4"),
        ("stride 1/3", "stride 1/3"),
    ],
)
def test_positions_are_those_that_indexing_would_have_kept(
    small_backbone: Backbone, tmp_path: Path, old: str, new: str
) -> None:
    source = write(small_backbone, tmp_path / "old", old, "8")
    expected = write(small_backbone, tmp_path / "indexed", new, "4 group 16")
    numbers = NumberFormat.parse("4 group 16")
    shared = encode_shared(small_backbone, numbers, exit_layer=EXIT, join_layer=0)
    report = repack_store(source, str(tmp_path / "new"), RepackPlan(Keep.parse(new), numbers), shared=shared)
    assert (report.pages, report.skipped) == (5, 0)
    assert report.bytes_per_page[1] < report.bytes_per_page[0]
    assert not list(find_damage(str(tmp_path / "new")))
    with PageStore.open(tmp_path / "new") as repacked, PageStore.open(expected) as indexed:
        assert repacked.lineage == indexed.lineage
        pairs = zip(*(opened.read_prefixes(opened.page_ids()) for opened in (repacked, indexed)), strict=True)
        for page, again in pairs:
            # int8 lies in between: of nearly equal norms another may win.
            assert np.isin(page.positions, again.positions).mean() > 0.9
            assert page.grid == again.grid
            if new.startswith("stride"):
                assert page.positions.tolist() == again.positions.tolist()
                different = page.key_scales.astype(int) - again.key_scales.astype(int)
                assert np.median(np.abs(different)) <= 8


def test_fewer_layers_are_the_first_of_those_stored(small_backbone: Backbone, tmp_path: Path) -> None:
    source = write(small_backbone, tmp_path / "old", "stride 1/3", "4")
    repack_store(source, str(tmp_path / "new"), RepackPlan(exit_layer=2))
    with PageStore.open(tmp_path / "new") as new, PageStore.open(source) as old:
        assert (new.lineage.exit_layer, new.lineage.keep) == (2, "stride 1/3")
        for page, whole in zip(
            *(opened.read_prefixes(opened.page_ids()) for opened in (new, old)), strict=True
        ):
            assert page.keys.shape[0] == 2
            assert page.shared is not None
            assert page.shared.keys.shape[0] == 2
            assert page.positions.tolist() == whole.positions.tolist()


def test_an_interrupted_run_goes_on_and_vectors_come_along(
    small_backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(small_backbone, tmp_path / "old", "stride 1", "4")
    with PageStore.open(source) as store, StoreWriter(source, store.lineage) as writer:
        writer.open_vectors(ORIGIN)
        writer.set_vectors({page_id: np.ones((2, 4), np.float16) for page_id in store.page_ids()})
    monkeypatch.setattr(repack_module, "_PAGES_PER_COMMIT", 2)
    plan, uri = RepackPlan(Keep.parse("stride 1/2")), str(tmp_path / "new")
    append, commits = StoreWriter.append, []

    def fail_at_third(writer: StoreWriter, batch: list[PageRow]) -> None:
        commits.append(len(batch))
        if len(commits) == 3:
            raise KeyboardInterrupt
        append(writer, batch)

    monkeypatch.setattr(StoreWriter, "append", fail_at_third)
    with pytest.raises(KeyboardInterrupt):
        repack_store(source, uri, plan)
    report = repack_store(source, uri, plan)
    assert (report.pages, report.skipped) == (1, 4)
    repack_store(source, str(tmp_path / "whole"), plan)
    with PageStore.open(uri) as store, PageStore.open(tmp_path / "whole") as whole:
        assert store.vectors is not None
        assert store.vectors.missing() == []
        pairs = zip(*(each.read_prefixes(whole.page_ids()) for each in (store, whole)), strict=True)
        for page, again in pairs:
            np.testing.assert_array_equal(page.keys, again.keys)
    with pytest.raises(LineageMismatch, match="keep"):
        repack_store(source, uri, RepackPlan(Keep.parse("stride 1/4")))


def test_the_same_settings_are_the_same_pages(small_backbone: Backbone, tmp_path: Path) -> None:
    source = write(small_backbone, tmp_path / "old", "stride 1/3", "8")
    repack_store(source, str(tmp_path / "new"), RepackPlan())
    with PageStore.open(tmp_path / "new") as new, PageStore.open(source) as old:
        for page, again in zip(
            *(opened.read_prefixes(opened.page_ids()) for opened in (new, old)), strict=True
        ):
            assert_same(page, again)


@pytest.mark.parametrize(
    ("keep", "bits", "plan", "reason"),
    [
        ("stride 1/3", "8", RepackPlan(Keep.parse("value-norm 1/6")), "wanted positions were dropped"),
        ("stride 1/3", "8", RepackPlan(Keep.parse("stride 1/2")), "wanted positions were dropped"),
        ("stride 1/3", "8", RepackPlan(Keep.parse("stride 1/4")), "were dropped when it was stored"),
        ("stride 1", "8", RepackPlan(Keep.parse("ink 1/3")), "looks at the page itself"),
        ("stride 1", "4", RepackPlan(numbers=NumberFormat(8, 8)), "cannot be made finer"),
        ("stride 1", "4", RepackPlan(exit_layer=9), "name one above 0, at most 4"),
        ("value-norm 1/2", "4", RepackPlan(exit_layer=2), "with fewer layers it would have chosen others"),
    ],
)
def test_what_the_old_store_no_longer_holds_is_refused(
    small_backbone: Backbone, tmp_path: Path, keep: str, bits: str, plan: RepackPlan, reason: str
) -> None:
    source = write(small_backbone, tmp_path / "old", keep, bits)
    with pytest.raises(StoreError, match=rf"{reason}.* From this store can be made: --keep"):
        repack_store(source, str(tmp_path / "new"), plan)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("keep", "bits", "possible"),
    [
        (
            "stride 1/3",
            "8",
            "--keep 'stride 1/3'; --bits of at most 8/8 (keys/values); --exit-layer 4 or",
        ),
        ("value-norm 1/5", "3/2", "--keep 'value-norm 1/5' or a smaller fraction; --bits of at most 3/2"),
        ("stride 1", "4", "--keep with any fraction by stride, value-norm"),
    ],
)
def test_a_refusal_names_what_the_store_still_holds(
    small_backbone: Backbone, keep: str, bits: str, possible: str
) -> None:
    lineage = make_lineage(
        small_backbone, exit_layer=EXIT, join_layer=0, keep=Keep.parse(keep), numbers=NumberFormat.parse(bits)
    )
    with pytest.raises(StoreError) as caught:
        RepackPlan(Keep.parse("ink 1/2")).apply(lineage)
    assert possible in str(caught.value)


def test_larger_pages_are_refused_with_both_sizes(small_backbone: Backbone, tmp_path: Path) -> None:
    source, target = write(small_backbone, tmp_path / "old", "stride 1", "3/2"), str(tmp_path / "new")
    with pytest.raises(StoreError, match=r"exit 4 takes 0\.\d+ MB a page, and the store's .* 0\.\d+ MB"):
        repack_store(source, target, RepackPlan(numbers=NumberFormat(3, 2, 8)))
    report = repack_store(source, target, RepackPlan(Keep.parse("value-norm 1/3")))
    assert report.bytes_per_page[1] < report.bytes_per_page[0]


def test_a_store_is_not_repacked_into_itself(small_backbone: Backbone, tmp_path: Path) -> None:
    source = write(small_backbone, tmp_path / "old", "stride 1", "4")
    with pytest.raises(StoreError, match="into itself"):
        repack_store(source, f"{source}/", RepackPlan())

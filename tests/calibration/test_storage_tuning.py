"""Storage settings tried on a sample of pages: a calibration's numbers, resumable, the store untouched."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration import setting_states, storage_tuning
from ridgerank.calibration.calibrate import calibrate
from ridgerank.calibration.hooks import SilentTuningHook
from ridgerank.calibration.ridge_fit import LEAST_LISTS
from ridgerank.calibration.storage_choice import MeasuredSetting, StorageGoal
from ridgerank.calibration.storage_tuning import (
    TuningReport,
    _limit_pages,
    combine_settings,
    tune_storage,
)
from ridgerank.errors import BackboneError, CalibrationError
from ridgerank.indexing.index import index_documents
from ridgerank.miniature.corpora import find_plan, make_corpus
from ridgerank.miniature.draw import draw_corpus
from ridgerank.records import Candidate, Query
from ridgerank.runs.queries import read_queries
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_bytes import mean_page_bytes, sample_page_shapes
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.setting_compressor import SettingCompressor
from ridgerank.store.storage_setting import StorageSetting
from tests.calibration.conftest import RecordingHook
from tests.indexing.test_index import Seen, contents

CURRENT = StorageSetting(Keep(), NumberFormat(), 4)
SETTINGS = [CURRENT, replace(CURRENT, numbers=NumberFormat(4, 4, 32)), replace(CURRENT, exit_layer=2)]
SIZES: Any = {"query_count": 20, "candidates": 8}


@dataclass
class RecordingTuningHook(SilentTuningHook):
    """A hook that counts pages, and interrupts if told to."""

    planned_pages: tuple[int, int] = (0, 0)
    pages: int = 0
    interrupt_after: int | None = None

    def settings_planned(self, settings: int, pages: int, pages_to_encode: int) -> None:
        self.planned_pages = (pages, pages_to_encode)

    def pages_measured(self, pages: int) -> None:
        self.pages += pages
        if self.interrupt_after is not None and self.pages >= self.interrupt_after:
            raise KeyboardInterrupt


def tune(store: str, backbone: Backbone, **options: Any) -> TuningReport:  # noqa: ANN401
    return tune_storage(store, backbone=backbone, **{**SIZES, "settings": SETTINGS, **options})


def planned_bytes(store: str, backbone: Backbone, setting: StorageSetting) -> int:
    before_page = backbone.tokens.count_before_page()
    with PageStore.open(store) as opened:
        return round(mean_page_bytes(sample_page_shapes(opened, before_page), setting))


def without_times(rows: Sequence[MeasuredSetting]) -> list[MeasuredSetting]:
    return [replace(row, pass_time_ratio=0.0) for row in rows]


def test_the_agreement_of_the_current_setting_is_what_calibrate_reports(
    store: str, small_backbone: Backbone
) -> None:
    calibration = calibrate(store, backbone=small_backbone, **SIZES)
    before = contents(Path(store))
    report = tune(store, small_backbone)
    current = report.rows[0]
    assert contents(Path(store)) == before
    assert (report.target, report.state) == (calibration.target, calibration.state)
    assert current.agreement == pytest.approx(calibration.diagnostics.agreement, abs=1e-3)
    assert (current.difference, current.pass_time_ratio) == (0.0, 1.0)
    assert [row.setting for row in report.rows] == SETTINGS


def test_bytes_are_those_on_disk_of_a_store_of_each_setting(
    store: str, reports: Path, small_backbone: Backbone, tmp_path: Path
) -> None:
    report = tune(store, small_backbone, candidates=40)
    assert report.pages == 40
    for row in report.rows:
        uri, setting = tmp_path / f"again-{row.setting.exit_layer}-{row.setting.numbers}", row.setting
        index_documents(
            [reports], uri, small_backbone, keep=setting.keep, numbers=setting.numbers,
            exit_layer=setting.exit_layer, processes=1,
        )  # fmt: skip
        with PageStore.open(uri) as indexed:
            assert row.bytes_per_page == pytest.approx(indexed.info().bytes_per_page)
        assert row.bytes_per_page == pytest.approx(planned_bytes(store, small_backbone, setting), abs=1)


def test_without_a_calibration_target_and_state_are_those_it_would_select(
    store: str, small_backbone: Backbone
) -> None:
    report = tune(store, small_backbone)
    calibration = calibrate(store, backbone=small_backbone, **SIZES)
    assert (report.target, report.state) == (calibration.target, calibration.state)


def test_each_page_is_encoded_once_for_all_settings(
    store: str, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(store, backbone=small_backbone, **SIZES)
    encode, sizes = Backbone.encode, []

    def count(backbone: Backbone, pages: Sequence[Any], **layers: int) -> Any:  # noqa: ANN401
        sizes.append(len(pages))
        return encode(backbone, pages, **layers)

    monkeypatch.setattr(Backbone, "encode", count)
    report = tune(store, small_backbone)
    timed, blank = 8, 2  # the blank page: once for states, once for times
    assert sum(sizes) == report.pages + timed + blank


def test_an_interrupted_run_goes_on_and_gives_the_same(
    store: str, small_backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting_states, "_PAGES_PER_PART", 8)
    whole = tune(store, small_backbone, work=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tune(store, small_backbone, hook=RecordingTuningHook(interrupt_after=20))
    hook = RecordingTuningHook()
    resumed = tune(store, small_backbone, hook=hook)
    assert hook.planned_pages == (whole.pages, whole.pages - 16)
    assert hook.pages == whole.pages - 16
    assert without_times(resumed.rows) == without_times(whole.rows)


def test_of_further_settings_only_the_new_ones_are_computed(
    store: str, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(store, small_backbone)
    compressed: list[StorageSetting] = []
    compress = SettingCompressor.compress

    def record(compressor: SettingCompressor, prefix: Any, page: Any, setting: StorageSetting) -> Any:  # noqa: ANN401
        compressed.append(setting)
        return compress(compressor, prefix, page, setting)

    monkeypatch.setattr(SettingCompressor, "compress", record)
    new = replace(CURRENT, keep=Keep.parse("value-norm 1/6"))
    report = tune(store, small_backbone, settings=[*SETTINGS, new])
    assert compressed.count(new) == report.pages + 8
    assert all(compressed.count(setting) == 8 for setting in SETTINGS)  # timed again
    same = tune(store, small_backbone, settings=[*SETTINGS, new])
    assert without_times(same.rows) == without_times(report.rows)


def test_fewer_pages_shorten_the_lists_and_too_few_are_refused(store: str, small_backbone: Backbone) -> None:
    report = tune(store, small_backbone, candidates=12, pages=39)
    assert report.pages <= 39
    assert 5 <= report.candidates < 12
    with pytest.raises(
        CalibrationError,
        match=r"at most 3 pages, and the 5 best candidates of 20 queries are (\d+); raise --pages to \1$",
    ):
        tune(store, small_backbone, pages=3)


def test_fewer_queries_are_advised_only_where_enough_are_left_and_their_pages_fit() -> None:
    candidates = [Candidate(f"page {number}", 1.0) for number in range(6)]
    lists = {Query(str(number), "text"): candidates[:5] for number in range(LEAST_LISTS)}
    lists[Query("last", "text")] = candidates[1:6]
    with pytest.raises(CalibrationError, match=r"raise --pages to 6, or give only the first 16 queries"):
        _limit_pages(lists, 5)


def test_settings_over_the_budget_are_not_computed(store: str, small_backbone: Backbone) -> None:
    budget = planned_bytes(store, small_backbone, SETTINGS[1])
    report = tune(store, small_backbone, goal=StorageGoal(budget_bytes=budget))
    assert [row.setting for row in report.rows][:2] == SETTINGS[:2]
    assert len(report.rows) + report.over_budget == len(SETTINGS)
    assert all(row.bytes_per_page <= budget for row in report.rows[1:])


def test_a_budget_nothing_fits_is_refused_before_a_query_is_run(
    store: str, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(storage_tuning, "find_candidates", fail)
    smallest = min(SETTINGS, key=lambda setting: planned_bytes(store, small_backbone, setting))
    with pytest.raises(CalibrationError) as caught:
        tune(store, small_backbone, goal=StorageGoal(budget_bytes=1000))
    size = planned_bytes(store, small_backbone, smallest) / 1e6
    assert f"the smallest, {smallest}, takes {size:.3f} MB" in str(caught.value)


def test_the_targets_of_a_calibration_are_used_again(store: str, small_backbone: Backbone) -> None:
    class Recording(RecordingHook, RecordingTuningHook):
        def __init__(self) -> None:
            RecordingHook.__init__(self)
            RecordingTuningHook.__init__(self)

    calibrate(store, backbone=small_backbone, **SIZES)
    hook = Recording()
    tune(store, small_backbone, hook=hook)
    assert hook.plans[0].pages_to_encode == 0


def test_a_layer_the_model_lacks_is_refused_before_a_page_is_read(
    store: str, small_backbone: Backbone
) -> None:
    with pytest.raises(BackboneError, match="of a model of 5 layers"):
        tune(store, small_backbone, settings=[replace(CURRENT, exit_layer=6)])


def test_named_settings_are_combined_and_what_is_not_named_stays() -> None:
    bits = [NumberFormat(4, 4), NumberFormat(2, 2)]
    settings = combine_settings(CURRENT, numbers=bits, exit_layers=[2, 3])
    assert settings[0] == CURRENT
    assert len(settings) == 5
    assert {setting.keep for setting in settings} == {CURRENT.keep}


@pytest.mark.slow
def test_on_drawn_pages_four_bits_chosen_by_value_agree_more_in_fewer_bytes(tmp_path: Path) -> None:
    """The shipped model reads what is drawn: here r means something."""
    for _ in draw_corpus(make_corpus(find_plan("alder")), tmp_path / "drawn"):
        pass
    model = load_backbone("mini-qwen", device="cpu")
    documents = sorted((tmp_path / "drawn/documents").glob("*.pdf"))[:4]
    index_documents(documents, tmp_path / "store", model, hook=Seen(), processes=1)
    with PageStore.open(tmp_path / "store") as store:
        current = StorageSetting.from_lineage(store.lineage)
        report = tune_storage(
            store,
            settings=combine_settings(
                current,
                keeps=[Keep.parse("value-norm 1/3")],
                numbers=[NumberFormat.parse("4 group 32")],
                exit_layers=[current.exit_layer, current.exit_layer // 2],
            ),
            backbone=model,
            queries=read_queries(tmp_path / "drawn/queries.jsonl")[:40],
            candidates=10,
        )
    now, by_value, shallow = report.rows
    assert by_value.clearly_better
    assert by_value.bytes_per_page < 0.6 * now.bytes_per_page
    assert shallow.difference_interval[1] < 0
    assert report.choice.recommended is by_value
    assert not report.repackable

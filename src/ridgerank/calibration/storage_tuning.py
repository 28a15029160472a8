"""Storage settings tried on a sample of a store's pages, without labels.

The sample is the candidates of calibration queries. Pages are rendered again, encoded once to the deepest
layer tried and stored in every setting; each query runs over its candidates in each of them. A readout is
fitted to each setting as `calibrate` does, and its held-out agreement with the full model is the measure.
States are kept on disk, some pages at a time: an interrupted run goes on, and further settings are added.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import parse_dtype
from ridgerank.backbones.presets import available_targets
from ridgerank.calibration.artifact import DEFAULT_NAME, Calibration, list_calibrations
from ridgerank.calibration.calibrate import (
    CANDIDATES,
    complete_targets,
    gather_data,
    make_local_executor,
)
from ridgerank.calibration.candidate_lists import find_candidates
from ridgerank.calibration.executor import LocalExecutor
from ridgerank.calibration.hooks import SilentTuningHook, TuningHook
from ridgerank.calibration.query_choice import QUERIES, choose_queries
from ridgerank.calibration.ridge_fit import LEAST_LISTS, fit_readout
from ridgerank.calibration.selection import select_readout
from ridgerank.calibration.setting_grid import default_settings
from ridgerank.calibration.setting_states import SettingStates
from ridgerank.calibration.setting_times import time_settings
from ridgerank.calibration.storage_choice import (
    MeasuredSetting,
    StorageChoice,
    StorageGoal,
    choose_storage,
    measure_setting,
    refuse_budget,
)
from ridgerank.calibration.target_cache import TargetCache
from ridgerank.errors import CalibrationError
from ridgerank.ragged import Floats
from ridgerank.records import STATES, Candidate, Query, State, Target
from ridgerank.retrievers.base import Retriever
from ridgerank.retrievers.load import load_retriever
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_bytes import mean_page_bytes, sample_page_shapes
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.repack import RepackPlan, can_repack
from ridgerank.store.sidecar import edit_calibrations
from ridgerank.store.storage_setting import StorageSetting

if TYPE_CHECKING:
    import torch

SAMPLE_PAGES = 256
"""Pages read again, at most."""
_LEAST_CANDIDATES = 5
"""A correlation over fewer candidates says little."""
_REPACKED_PAGES = 8
"""Pages on which repacking is tried."""


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What was tried, on what, and what to index with."""

    rows: tuple[MeasuredSetting, ...]
    """The current setting first."""
    choice: StorageChoice
    repackable: bool
    """Whether the recommended setting can be made of the store without reading a page again."""
    target: Target
    state: State
    queries: int
    queries_from: str
    pages: int
    candidates: int
    """Of a query, at most."""
    over_budget: int = 0
    """Settings that were not tried: their pages are larger than the budget."""


def combine_settings(
    current: StorageSetting,
    *,
    keeps: Sequence[Keep] = (),
    numbers: Sequence[NumberFormat] = (),
    exit_layers: Sequence[int] = (),
) -> list[StorageSetting]:
    """The current setting, then every combination; what is not named is as in the current setting."""
    combined = [
        StorageSetting(keep, number_format, exit_layer)
        for exit_layer in exit_layers or [current.exit_layer]
        for keep in keeps or [current.keep]
        for number_format in numbers or [current.numbers]
    ]
    return list(dict.fromkeys([current, *combined]))


def tune_storage(
    store: str | Path | PageStore,
    *,
    goal: StorageGoal | None = None,
    settings: Sequence[StorageSetting] | None = None,
    backbone: Backbone | str | None = None,
    retriever: Retriever | str | None = None,
    queries: Sequence[Query] | None = None,
    queries_from: str = "given",
    name: str = DEFAULT_NAME,
    pages: int = SAMPLE_PAGES,
    candidates: int = CANDIDATES,
    query_count: int = QUERIES,
    documents: Sequence[str | Path] = (),
    device: str | None = None,
    dtype: "str | torch.dtype | None" = None,
    work: Path | None = None,
    hook: TuningHook | None = None,
) -> TuningReport:
    """Measure storage settings on a sample of a store's pages, and choose one; the store stays as it is.

    Retriever, target and state are those of the calibration called `name` where there is one; without it
    they are chosen as `calibrate` does. Targets are kept with the calibration's. At most `pages` pages are
    read again: where the queries have more candidates, each keeps only its best. States are kept in `work`,
    by default beside the store's calibrations.
    """
    hook = hook or SilentTuningHook()
    with ExitStack() as stack:
        page_store = (
            store if isinstance(store, PageStore) else stack.enter_context(PageStore.open(str(store)))
        )
        settings = _list_settings(page_store, settings)
        executor = make_local_executor(page_store, backbone, device=device, dtype=dtype)
        for setting in settings:
            setting.keep.require_readable(reads_text=executor.shallow.backbone.reads_text)
            executor.shallow.backbone.geometry.require_layers(
                page_store.lineage.join_layer, setting.exit_layer
            )
        goal = goal or StorageGoal()
        affordable = _within_budget(executor, settings, goal)
        folder = stack.enter_context(edit_calibrations(page_store.uri))
        calibration = None
        if name in list_calibrations(folder):
            calibration = Calibration.load(folder, name, lineage=page_store.lineage)
            retriever = retriever or calibration.retriever_source
        if not isinstance(retriever, Retriever):
            retriever = load_retriever(retriever, page_store, device=device, dtype=parse_dtype(dtype))
        files = [Path(document) for document in documents]
        cache = TargetCache(folder, page_store.lineage)
        query_set = choose_queries(
            queries, executor, page_store, cache, origin=queries_from, count=query_count, documents=files
        )
        lists = _limit_pages(find_candidates(retriever, query_set.queries, candidates), pages)
        own_targets = available_targets(page_store.lineage.prompt_name)
        if calibration is not None and calibration.target == "teacher":
            raise CalibrationError(
                f"this calibration reproduces {calibration.diagnostics.teacher}; storage is tuned by the "
                "model's own scores: leave the calibration out"
            )
        targets = own_targets if calibration is None else (calibration.target,)
        complete_targets(executor, page_store, cache, lists, targets, files, query_set, hook)
        if calibration is None:
            target, state = _select(executor, lists, cache, targets, hook)
        else:
            target, state = calibration.target, calibration.state
        sample = _Sample(executor, lists, cache, target, state, query_set.origin, files)
        report = _measure(sample, affordable, goal, work or folder / ".tuning", hook)
        return replace(report, over_budget=len(settings) - len(affordable))


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """What settings are tried on."""

    executor: LocalExecutor
    lists: Mapping[Query, Sequence[Candidate]]
    cache: TargetCache
    target: Target
    state: State
    queries_from: str
    documents: Sequence[Path]


def _list_settings(store: PageStore, settings: Sequence[StorageSetting] | None) -> list[StorageSetting]:
    """The current setting, then the others, each once."""
    current = StorageSetting.from_lineage(store.lineage)
    if settings is None:
        return default_settings(
            current, join_layer=store.lineage.join_layer, reads_text=store.lineage.page_text is not None
        )
    return list(dict.fromkeys([current, *settings]))


def _within_budget(
    executor: LocalExecutor, settings: Sequence[StorageSetting], goal: StorageGoal
) -> list[StorageSetting]:
    """The current setting, and of the others those whose pages are within the budget, if there is one."""
    store, budget = executor.shallow.store, goal.budget_bytes
    if budget is None or not len(store):
        return list(settings)
    shapes = sample_page_shapes(store, executor.shallow.backbone.tokens.count_before_page())
    join_layer = store.lineage.join_layer
    sizes = {setting: mean_page_bytes(shapes, setting, join_layer=join_layer) for setting in settings}
    if min(sizes.values()) > budget:
        raise refuse_budget(sizes, budget)
    current, *others = settings
    return [current, *(setting for setting in others if sizes[setting] <= budget)]


def _measure(
    sample: _Sample, settings: Sequence[StorageSetting], goal: StorageGoal, work: Path, hook: TuningHook
) -> TuningReport:
    store, model = sample.executor.shallow.store, sample.executor.shallow.backbone
    states = SettingStates(work, model, store, sample.lists, sample.state)
    states.compute(settings, sample.documents, hook)
    times = time_settings(model, store, sample.lists, settings, sample.documents, hook)
    agreements = [_agreement(sample, states.read(setting)) for setting in settings]
    rows = tuple(
        measure_setting(
            setting,
            agreement=agreement,
            current_agreement=agreements[0],
            bytes_per_page=states.bytes_per_page(setting),
            pass_time_ratio=times[setting],
        )
        for setting, agreement in zip(settings, agreements, strict=True)
    )
    choice = choose_storage(rows, goal)
    chosen = choice.recommended.setting
    plan = RepackPlan(chosen.keep, chosen.numbers, chosen.exit_layer)
    return TuningReport(
        rows=rows,
        choice=choice,
        repackable=can_repack(store, plan, states.page_ids[:_REPACKED_PAGES]),
        target=sample.target,
        state=sample.state,
        queries=len(sample.lists),
        queries_from=sample.queries_from,
        pages=len(states.page_ids),
        candidates=max(map(len, sample.lists.values())),
    )


def _limit_pages(lists: Mapping[Query, Sequence[Candidate]], pages: int) -> dict[Query, Sequence[Candidate]]:
    """The longest lists whose pages are at most so many: each query keeps its best candidates."""
    for length in range(max(map(len, lists.values())), 0, -1):
        shortened = {query: candidates[:length] for query, candidates in lists.items()}
        if _count_pages(list(shortened.values())) <= pages:
            return shortened
        if length <= _LEAST_CANDIDATES:
            break
    shortest = [candidates[:_LEAST_CANDIDATES] for candidates in lists.values()]
    distinct = _count_pages(shortest)
    fits = _count_pages(shortest[:LEAST_LISTS]) <= pages
    fewer = f", or give only the first {LEAST_LISTS} queries" if fits else ""
    raise CalibrationError(
        f"at most {pages} pages, and the {_LEAST_CANDIDATES} best candidates of {len(lists)} queries are "
        f"{distinct}; raise --pages to {distinct}{fewer}"
    )


def _count_pages(lists: Sequence[Sequence[Candidate]]) -> int:
    return len({candidate.page_id for candidates in lists for candidate in candidates})


def _select(
    executor: LocalExecutor,
    lists: Mapping[Query, Sequence[Candidate]],
    cache: TargetCache,
    targets: Sequence[Target],
    hook: TuningHook,
) -> tuple[Target, State]:
    """The target and state that a calibration of the stored pages would select."""
    states = executor.compute_states(lists, STATES, on_queries_run=hook.queries_run)
    option = select_readout(gather_data(lists, cache, targets, states, None)).selected.option
    return option.target, option.state


def _agreement(sample: _Sample, states: Floats) -> Floats:
    """(lists,): r of each query whose candidates the full model tells apart, held out."""
    target, state = sample.target, sample.state
    data = gather_data(sample.lists, sample.cache, (target,), {state: states}, None)
    problem, _ = data.problem(target, state)
    return fit_readout(problem).agreement

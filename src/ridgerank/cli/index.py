"""`ridgerank index`: documents into a store."""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgerank.cli import _options
from ridgerank.cli._console import Bar, echo, format_duration, interruptible, warn
from ridgerank.cli.calibrate import calibration_progress, print_report
from ridgerank.documents.render import PageRef, list_pages, render_pages
from ridgerank.documents.sources import SUFFIXES, Failure, SourceFile, find_sources
from ridgerank.errors import BackboneError, CalibrationError, DocumentError, LineageMismatch, StoreError
from ridgerank.extras import require_packages
from ridgerank.lineage import (
    Keep,
    Lineage,
    StorageChoice,
    StorageSetting,
    parse_quality,
    parse_storage_preset,
)
from ridgerank.records import Page

if TYPE_CHECKING:
    from ridgerank.backbones.base import Backbone
    from ridgerank.backbones.model_settings import ModelSettings
    from ridgerank.indexing.index import IndexProgress, IndexReport, ProgressCallback

SOME_FAILED = 3
"""Exit status when the work was done but some files could not be read."""
FAILURES_SHOWN = 3
"""Pages of one file, lost for the same reason, that get a line each."""
MEASURED_PAGES = 2
"""Pages that a dry run encodes to measure bytes and time."""


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The model and how its pages are stored."""

    model: "ModelSettings"
    storage: StorageChoice
    stored: Lineage | None = None
    """The lineage of the store that is there."""
    like: str | None = None
    """The store whose basis a new one takes."""

    def load_model(self, store: str) -> "Backbone":
        """Load the model; one that cannot read as the store's own did is refused by both names."""
        echo(f"loading {self.model.name}")
        try:
            return self.model.load()
        except BackboneError as error:
            if self.stored is None or self.stored.backbone == self.model.name:
                raise
            raise LineageMismatch(
                f"{store} was made with {self.stored.backbone}, and {self.model.name} cannot take its place "
                f"({error}); leave --backbone out, or index into another store"
            ) from error


def index_command(
    paths: Annotated[list[Path], typer.Argument(help="PDFs, images, folders of both.")],
    store: _options.Store,
    backbone: Annotated[
        str | None,
        _options.model(
            help="Model: a folder, a hub name (owner/name) or a short name. [default: the store's own]",
            envvar="RIDGERANK_BACKBONE",
        ),
    ] = None,
    device: _options.Device = None,
    dtype: _options.Dtype = None,
    max_pixels: Annotated[
        int | None, _options.model(help="Pixels of a page image. [default: what suits the model]")
    ] = None,
    page_text: Annotated[
        str | None, _options.model(help="Tokens that a text model reads of a page. [default: head 512]")
    ] = None,
    preset: Annotated[
        str | None,
        _options.storage(help="Of a new store: small, or paper (stride 1/3, int8). [default: small]"),
    ] = None,
    keep: Annotated[
        str | None,
        _options.storage(
            help="Positions to keep: a rule (stride, value-norm) and a fraction. [default: preset's]"
        ),
    ] = None,
    quality: Annotated[
        str | None, _options.storage(help="2 halves the error of 1 and takes more bytes. [default: preset's]")
    ] = None,
    exit_layer: Annotated[
        int | None,
        _options.storage(help="Read pages to this layer. [default: preset's, 21 or 3/4; 2/5 for text]"),
    ] = None,
    like: Annotated[
        str | None,
        _options.storage(
            help="Of a new store: settings and basis of this one. [default: fitted to the pages]"
        ),
    ] = None,
    ocr: Annotated[
        bool,
        _options.document("--ocr", help="Read pages without a text layer off their image (slow, cached)."),
    ] = False,
    prune: Annotated[
        bool,
        _options.document("--prune", help="Afterwards the store holds these paths' pages and no others."),
    ] = False,
    retriever: Annotated[
        str | None, _options.retriever(help="Late interaction model whose vectors to store, too.")
    ] = None,
    calibrate: Annotated[bool, _options.ranking("--calibrate", help="Calibrate after indexing.")] = False,
    readout: Annotated[
        str | None,
        _options.ranking(help="A file, owner/name on the hub, or a shipped one. [default: the model's]"),
    ] = None,
    ray: _options.Ray = None,
    workers: Annotated[
        int | None, _options.machine(min=1, help="With --ray: workers. [default: one a GPU, else one a CPU]")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the pages, bytes and time it would take.")
    ] = False,
) -> None:
    """Read documents into a page store.

    Pages already stored are skipped, by content: run it again after an interruption, or when documents were
    added or changed. If a file cannot be read, or stored pages are left without vectors, the others are
    stored and the exit status is 3.

    Pages added to a store get its settings: model, layer, positions and quality.

    A shipped readout lets a new store be searched at once; `ridgerank calibrate` fits one to its own pages.

    With `--ray`, the workers must see the documents and the store under the same paths or URLs.

    Example: `ridgerank index reports/ --store pages --backbone Qwen/Qwen2.5-VL-7B-Instruct`
    """
    require_packages("torch", "transformers", "lance", "pyarrow", "pypdfium2", "PIL", "bm25s")
    # Before the heavy imports, so that a mistake is reported at once.
    if calibrate and ray is not None:
        raise typer.BadParameter(
            "not with --ray; use `ridgerank calibrate` after it", param_hint="--calibrate"
        )
    if readout is not None and (calibrate or ray is not None):
        raise typer.BadParameter("not with --calibrate or --ray", param_hint="--readout")

    from ridgerank.backbones.model_settings import ModelSettings, absolute_name

    require_documents(paths)
    typed = ModelSettings(absolute_name(backbone or ""), device, dtype, max_pixels, page_text)
    settings = resolve_settings(
        store, typed, preset=preset, keep=keep, quality=quality, exit_layer=exit_layer, like=like
    )
    if dry_run:
        _print_estimate(paths, store, settings)
        return
    from ridgerank.store.vector_columns import find_vector_origin

    if retriever is None and (stored := find_vector_origin(store)) is not None:
        echo(f"{store} holds vectors of {stored.source}: new pages get theirs, too")
        retriever = stored.source
    if ray is not None:
        report = _index_on_ray(ray, workers, paths, store, settings, retriever, ocr=ocr, prune=prune)
        _summarize(report, store, ocr=ocr)
    else:
        from ridgerank.atomic import cache_folder
        from ridgerank.backbones.load import parse_dtype
        from ridgerank.calibration.calibrate import calibrate as calibrate_store
        from ridgerank.documents.ocr import Recognizer
        from ridgerank.indexing.index import index_documents
        from ridgerank.retrievers.encoders import load_encoder

        recognizer = Recognizer(cache=cache_folder("ocr")) if ocr else None
        encoder = (
            None if retriever is None else load_encoder(retriever, device=device, dtype=parse_dtype(dtype))
        )
        model = settings.load_model(store)
        storage = settings.storage(layers=model.geometry.layers, reads_text=model.reads_text)
        taken: list[bool] = []

        def take_readout() -> None:
            taken.append(not calibrate and _take_readout(store, model, readout))

        with interruptible(_safe(store)), Bar("listing") as bar:
            report = index_documents(
                paths,
                store,
                model,
                embedder=encoder,
                exit_layer=storage.exit_layer,
                keep=storage.keep,
                quality=storage.quality,
                preset="paper" if storage.quality is None else "small",
                like=like,
                prune=prune,
                recognizer=recognizer,
                progress=_show_progress(bar, take_readout),
            )
        _summarize(report, store, ocr=ocr, calibrated=calibrate)
        if not taken:
            take_readout()
        if not taken[0]:
            try:
                with calibration_progress() as progress:
                    made = calibrate_store(
                        store, backbone=model, device=device, dtype=dtype, progress=progress
                    )
                print_report(made, store, "default", as_json=False)
            except CalibrationError as error:  # such as too few pages: they are stored all the same
                if calibrate:
                    raise
                warn(f"not calibrated: {error}")
    if report.failures or report.without_vectors:
        raise typer.Exit(SOME_FAILED)


def _take_readout(store: str, model: "Backbone", name: str | None) -> bool:
    """Give a store without calibrations a readout; False if the shipped one does not fit the model."""
    from ridgerank.calibration.artifact import list_calibrations
    from ridgerank.calibration.calibrate import open_workbench
    from ridgerank.calibration.readout_file import ReadoutFile, find_readout, shipped_for
    from ridgerank.store.lance_dataset import find_lineage
    from ridgerank.store.sidecar import open_calibrations

    given = None if name is None else (name, ReadoutFile.load(find_readout(name)))
    lineage = find_lineage(store)
    with open_calibrations(store) as folder:
        if lineage is None or (given is None and list_calibrations(folder)):
            return True
    chosen = given or shipped_for(lineage, model.geometry.width)
    if chosen is None:
        echo(f"no readout for {model.name}; before the first search: ridgerank calibrate --store {store}")
        return True
    name, file = chosen
    with open_workbench(store, backbone=model) as bench:
        if given is not None:
            file.require(model, lineage)
        elif not (result := file.check(model, lineage)).accepted:
            echo(f"the readout {name} is not one for {model.name} here, {result}: calibrating instead")
            return False
        calibration = file.over(lineage, f"the readout {name}", bench.incumbent)
        replace(calibration, **bench.retriever_fields).save(bench.folder)
    echo(f"{store} can be searched: its readout is {name}; `ridgerank calibrate` fits one to these pages")
    return True


def _index_on_ray(
    address: str,
    workers: int | None,
    paths: list[Path],
    store: str,
    settings: IndexSettings,
    retriever: str | None,
    *,
    ocr: bool,
    prune: bool,
) -> "IndexReport":
    from ridgerank.indexing.ray import EncodingPlan, connect_ray, index_on_ray, plan_workers

    plan = EncodingPlan(settings.model, settings.storage, retriever, ocr, settings.like)
    with connect_ray(address) as cluster:
        cluster_workers = plan_workers(cluster, workers, settings.model.device)
        echo(f"Ray at {address}: {cluster_workers.count} workers")
        with interruptible(_safe(store)), Bar("listing") as bar:
            return index_on_ray(
                [os.path.realpath(path) for path in paths],
                store if "://" in store else os.path.realpath(store),
                plan,
                ray=cluster,
                workers=cluster_workers,
                progress=_show_progress(bar),
                prune=prune,
            )


def _safe(store: str) -> str:
    return f"what was committed is safe in {store}: run it again to go on"


def _summarize(report: "IndexReport", store: str, *, ocr: bool, calibrated: bool = False) -> None:
    from ridgerank.calibration.artifact import list_calibrations
    from ridgerank.store.sidecar import open_calibrations

    counted = (
        (report.embedded, "of them given vectors"),
        (report.replaced, "of changed files replaced"),
        (report.removed, "removed"),
        (report.copies, "copies of the same content"),
        (report.skipped_files, "files of other types passed over"),
        (len(report.failures), "not read"),
    )
    facts = [f"{report.added} pages added", f"{report.skipped} stored before"]
    facts += [f"{count} {what}" for count, what in counted if count]
    echo(f"{store}: {', '.join(facts)}")
    for line in report.renamed:
        echo(line)
    if report.without_vectors:
        warn(
            f"{len(report.without_vectors)} stored pages have no vectors, {report.without_vectors[0]} among "
            "them: their documents were not given, so they cannot be rendered again; give them, or --prune"
        )
    if report.removed and not calibrated:
        with open_calibrations(store) as folder:
            names = list_calibrations(folder)
        if names:
            warn(
                f"{report.removed} pages were removed, and the calibration {', '.join(names)} was fitted "
                "with them; it still ranks, at a weight for other pages: run `ridgerank calibrate --store "
                f"{store}`"
            )
    if report.without_text:
        blank = f"{len(report.without_text)} stored pages have no text, {report.without_text[0]} among them"
        advice = (
            "OCR found none on them either, or they were stored before without it"
            if ocr
            else "read them off their image: index into a new store with --ocr (pip install 'ridgerank[ocr]')"
        )
        warn(f"{blank}: to a model that reads text they are blank pages; {advice}")
    if report.added:
        size = report.prefix_bytes / report.added / 1e6
        echo(f"{format_speed(report.added, report.seconds)}, {size:.2f} MB a page")


def format_speed(pages: int, seconds: float) -> str:
    """Pages per second; seconds per page if that is less than one."""
    return f"{pages / seconds:.1f} pages/s" if pages >= seconds else f"{seconds / pages:.1f} s/page"


def _show_progress(bar: Bar, take_readout: Callable[[], None] = lambda: None) -> "ProgressCallback":
    """Pages done, pages per second and bytes per page on a bar, and a line for what could not be read.

    `take_readout` is called as soon as all pages can be found, so that a search need not wait for the rest.
    """
    failures: Counter[tuple[str, str]] = Counter()
    done_before: int | None = None

    def show(progress: "IndexProgress") -> None:
        nonlocal done_before
        if progress.failure is not None:
            reference, reason = progress.failure.reference, progress.failure.reason
            document = reference.rpartition("#")[0] or reference
            failures[document, reason] += 1  # a file that loses many pages gets few lines
            if failures[document, reason] <= FAILURES_SHOWN:
                bar.echo(f"not read: {progress.failure}", style="yellow")
            elif failures[document, reason] == FAILURES_SHOWN + 1:
                bar.echo(f"not read: more pages of {document}, for the same reason", style="yellow")
        elif progress.searchable:
            take_readout()
        elif done_before is None:
            done_before = progress.done
            bar.start("indexing", progress.total - progress.done)
            bar.echo(f"{progress.total} pages, {progress.done} of them stored already")
        else:
            pages = progress.done - done_before
            speed = f"{format_speed(pages, bar.seconds)}, " if bar.seconds else ""
            bar.advance(pages - bar.done, rate=f"{speed}{progress.nbytes / pages / 1e6:.2f} MB/page")

    return show


def _print_estimate(paths: list[Path], store: str, settings: IndexSettings) -> None:
    """Print how many pages, bytes and seconds indexing would take; nothing is written or downloaded."""
    from ridgerank.store.page_store import PageStore

    listed = {ref.page_id: ref for ref in list_pages(paths, processes=1) if isinstance(ref, PageRef)}
    stored: set[str] = set()
    if settings.stored is not None:
        with PageStore.open(store) as opened:
            stored = listed.keys() & set(opened.page_ids())
    new = [ref for page_id, ref in listed.items() if page_id not in stored]
    typer.echo(f"pages: {len(listed)}, {len(stored)} of them stored already")
    if not new:
        return
    page_bytes, page_seconds, source = measure_pages(new[:MEASURED_PAGES], settings)
    size, duration = f"unknown, {source}", "unknown, as the model is not on this machine"
    if page_bytes is not None:
        total = f"about {len(new) * page_bytes / 1e6:,.1f} MB"
        size = f"{total} ({page_bytes / 1e6:.2f} MB a page, {source})"
    if page_seconds is not None:
        duration = f"about {format_duration(len(new) * page_seconds)} ({source})"
    typer.echo(f"bytes: {size}\ntime: {duration}")


def measure_pages(
    refs: list[PageRef], settings: IndexSettings, model: "Backbone | None" = None
) -> tuple[float | None, float | None, str]:
    """Bytes and seconds per page, and where they come from: a few pages encoded in memory, or arithmetic."""
    from ridgerank.backbones.model_settings import find_model
    from ridgerank.store.layout import count_page_bytes, find_shape, pack

    if model is None and not is_downloaded(*find_model(settings.model.name)):
        try:
            shape = find_shape(settings.model.name)
        except BackboneError:
            return None, None, "as the model is not on this machine and its shape is not known"
        setting = settings.storage(layers=shape.layers, reads_text=shape.reads_text)
        return count_page_bytes(shape, setting), None, "by the model's shape"
    from ridgerank.indexing.encode import Listing, PageEncoder

    model = model or settings.model.load()
    setting = settings.storage(layers=model.geometry.layers, reads_text=model.reads_text)
    encoder = PageEncoder.create(model, None, setting)
    listing = Listing({ref.page_id: ref for ref in refs}, {ref.page_id: [ref.reference] for ref in refs})
    start = time.perf_counter()
    rendered = render_pages(refs, max_pixels=model.page_budget, processes=1)
    pages = [page for page in rendered if isinstance(page, Page)]
    if not pages:
        return None, None, "as none of the first pages can be read"
    if encoder.needs_basis:
        encoder, encoded = encoder.fit([pages], listing)
    else:
        encoded = encoder.encode(pages, listing, frozenset())
    seconds = (time.perf_counter() - start) / len(pages)
    blocks = [pack(row.prefix) for row in encoded.rows if row.prefix is not None]
    return sum(map(len, blocks)) / len(pages), seconds, f"measured on {len(pages)} pages"


def is_downloaded(location: str, gguf: str | None) -> bool:
    """Whether a model can be loaded without leaving files behind: GGUF files are converted to a cache."""
    if gguf is not None or Path(location).is_dir():
        return gguf is None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        snapshot_download(location, local_files_only=True)
    except (HFValidationError, LocalEntryNotFoundError):
        return False
    return True


def resolve_settings(
    store: str,
    typed: "ModelSettings",
    *,
    preset: str | None = None,
    keep: str | None = None,
    quality: str | None = None,
    exit_layer: int | None = None,
    like: str | None = None,
) -> IndexSettings:
    """What was typed, else what the store was made with, else a preset; a difference to the store is refused.

    The name of the typed model is empty if none was typed. No model is loaded.
    """
    from ridgerank.backbones.model_settings import ModelSettings, find_model
    from ridgerank.store.lance_dataset import find_lineage

    chosen_preset = parse_storage_preset(preset or "small")
    chosen_keep = None if keep is None else Keep.parse(keep)
    chosen_quality = None if quality is None else parse_quality(quality)
    storage = partial(
        StorageSetting.from_preset,
        chosen_preset,
        keep=chosen_keep,
        quality=chosen_quality,
        exit_layer=exit_layer,
    )
    lineage = find_lineage(store)
    if lineage is None and like is not None:
        store, lineage = like, find_lineage(like)
        if lineage is None:
            raise StoreError(f"no page store at {like} to take settings from; check the path")
    if lineage is None:
        if not typed.name:
            from ridgerank.indexing.index import describe_models

            raise BackboneError(
                f"{describe_models(store)}\nName one with --backbone, or in RIDGERANK_BACKBONE."
            )
        find_model(typed.name)
        return IndexSettings(typed, storage)
    stored = lineage.storage
    # Of the preset's setting only the exit layer depends on the number of layers.
    named = replace(storage(layers=1, reads_text=lineage.page_text is not None), exit_layer=stored.exit_layer)
    compared: dict[str, tuple[Any, Any]] = {
        "--preset": (None if preset is None else named, replace(stored, basis=None)),
        "--keep": (chosen_keep, stored.keep),
        "--quality": (chosen_quality, stored.quality),
        "--exit-layer": (exit_layer, stored.exit_layer),
        "--max-pixels": (typed.max_pixels, lineage.max_pixels),
        "--page-text": (typed.page_text, lineage.page_text),
    }
    differing = {option: values for option, values in compared.items() if values[0] not in (None, values[1])}
    if differing:
        found = ", ".join(f"{option} {str(b)!r}, not {str(a)!r}" for option, (a, b) in differing.items())
        raise LineageMismatch(
            f"{store} was made with {found}; leave {' and '.join(differing)} out, or index into another store"
        )
    model = ModelSettings.from_lineage(
        lineage, name=typed.name or None, device=typed.device, dtype=typed.dtype
    )
    find_model(model.name)
    if not typed.name:
        echo(f"{store} was made with {model.name}, {stored}: so are the new pages")
    storage = partial(
        StorageSetting.from_preset,
        "paper",  # nothing is left open to a preset
        keep=stored.keep,
        quality=stored.quality,
        exit_layer=stored.exit_layer,
    )
    return IndexSettings(model, storage, None if store == like else lineage, like)


def require_documents(paths: Sequence[Path]) -> None:
    """Refuse paths under which there is nothing to read, before any model is loaded."""
    failures = []
    for item in find_sources(paths):
        if isinstance(item, SourceFile):
            return
        if isinstance(item, Failure):
            failures.append(str(item))
    names = ", ".join(map(str, paths))
    reasons = f" ({'; '.join(failures[:3])})" if failures else ""
    raise DocumentError(
        f"nothing to index under {names}{reasons}; expected files with one of {' '.join(sorted(SUFFIXES))}"
    )

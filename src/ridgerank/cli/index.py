"""`ridgerank index`: documents into a store."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ridgerank.cli.calibrate import calibration_progress
from ridgerank.cli.calibration_report import print_report, warn_of_stale_calibrations
from ridgerank.cli.index_options import (
    AlsoCalibrate,
    Bits,
    CalibrationQueries,
    DocumentPaths,
    ExitLayer,
    IndexBackbone,
    KeepRule,
    MaxPixels,
    Ocr,
    PageText,
    PresetName,
    PromptName,
    Prune,
    RenderProcesses,
    VectorRetriever,
)
from ridgerank.cli.options import Device, Dtype, Ray, Store, Workers
from ridgerank.cli.progress_bars import Bar, IndexProgress, format_speed
from ridgerank.cli.talk import say, warn

if TYPE_CHECKING:
    import torch

    from ridgerank.cli.index_settings import IndexSettings
    from ridgerank.documents.ocr import Recognizer
    from ridgerank.indexing.progress import IndexReport
    from ridgerank.retrievers.encoders import MultiVectorEncoder
    from ridgerank.scaleout.encoding_worker import EncodingPlan

SOME_FAILED = 3
"""Exit status when the work was done but some files could not be read."""


def index_command(
    paths: DocumentPaths,
    store: Store,
    backbone: IndexBackbone = None,
    device: Device = None,
    dtype: Dtype = None,
    max_pixels: MaxPixels = None,
    page_text: PageText = None,
    prompt: PromptName = None,
    preset: PresetName = None,
    keep: KeepRule = None,
    bits: Bits = None,
    exit_layer: ExitLayer = None,
    ocr: Ocr = False,
    prune: Prune = False,
    processes: RenderProcesses = None,
    retriever: VectorRetriever = None,
    calibrate: AlsoCalibrate = False,
    queries: CalibrationQueries = None,
    ray: Ray = None,
    workers: Workers = None,
) -> None:
    """Read documents once and store what the model made of each page.

    Pages already stored are skipped, by content; run it again after an interruption, or when documents
    were added or changed: the pages of a changed file are replaced. A file whose name another file has in the
    store gets its folder in front of it, and that is said. A file that cannot be read is one line on stderr,
    the rest goes on, and the exit status is 3; so it is where stored pages are left without vectors.

    With `--retriever` each page is rendered once for both models; added to a store that has pages already, it
    reads again only those that lack vectors, so give it their documents.

    Into a store that is there, pages go as its pages are: same model, same layer, positions and bits. A new
    store takes a `--preset`: where its settings were measured stands in docs/storage.md.

    With `--calibrate` the store is calibrated after it is indexed, as by `ridgerank calibrate`.

    With `--ray` pages are read by the workers of a cluster, which must see the documents and the store under
    the same paths or URLs; the store is the one a single machine makes.

    Example: `ridgerank index reports/ --store pages --backbone Qwen/Qwen2.5-VL-7B-Instruct`
    """
    from ridgerank.extras import require_packages

    require_packages("torch", "transformers", "lance", "pyarrow", "pypdfium2", "PIL", "bm25s")
    from ridgerank.cli.index_settings import require_documents, settle_index

    # Before the heavy imports, so that a mistake is reported at once.
    if queries is not None and not calibrate:
        raise typer.BadParameter("queries are for --calibrate", param_hint="--queries")
    if calibrate and ray is not None:
        raise typer.BadParameter(
            "not with --ray; use `ridgerank calibrate` after it", param_hint="--calibrate"
        )
    from ridgerank.queries import read_queries

    calibration_queries = None if queries is None else read_queries(queries)
    require_documents(paths)
    settings = settle_index(
        store,
        backbone=backbone,
        device=device,
        dtype=dtype,
        preset=preset,
        keep=keep,
        bits=bits,
        exit_layer=exit_layer,
        max_pixels=max_pixels,
        page_text=page_text,
        prompt=prompt,
    )
    if ray is not None:
        retriever = _choose_retriever(retriever, store)
        plan = _plan_encoding(settings, retriever, ocr=ocr)
        _finish(_index_on_ray(ray, workers, paths, store, plan, prune=prune), store, ocr=ocr)
        return
    from ridgerank.backbones.load import parse_dtype
    from ridgerank.indexing.index import index_documents

    recognizer = _make_recognizer() if ocr else None
    encoder = _load_encoder(retriever, store, device=device, dtype=parse_dtype(dtype))
    model = settings.load_model(store)
    storage = settings.storage(layers=model.geometry.layers, reads_text=model.reads_text)
    try:
        with Bar("listing") as bar:
            report = index_documents(
                paths,
                store,
                model,
                embedder=encoder,
                exit_layer=storage.exit_layer,
                keep=storage.keep,
                numbers=storage.numbers,
                prune=prune,
                processes=processes,
                recognizer=recognizer,
                hook=IndexProgress(bar),
            )
    except KeyboardInterrupt:
        raise _report_interruption(store) from None
    _summarize(report, store, ocr=ocr, calibrated=calibrate)
    if calibrate:
        from ridgerank.calibration.calibrate import calibrate as calibrate_store

        with calibration_progress() as progress:
            calibration = calibrate_store(
                store,
                backbone=model,
                queries=calibration_queries,
                queries_from="" if queries is None else f"from {queries.name}",
                device=device,
                dtype=dtype,
                progress=progress,
            )
        print_report(calibration, store, "default", as_json=False)
    _exit_if_incomplete(report)


def _plan_encoding(settings: "IndexSettings", retriever: str | None, *, ocr: bool) -> "EncodingPlan":
    from ridgerank.scaleout.encoding_worker import EncodingPlan

    return EncodingPlan(settings.model, settings.storage, retriever, ocr)


def _index_on_ray(
    address: str, workers: int | None, paths: list[Path], store: str, plan: "EncodingPlan", *, prune: bool
) -> "IndexReport":
    from ridgerank.scaleout.ray_cluster import connect_ray, plan_workers
    from ridgerank.scaleout.ray_indexing import index_on_ray

    with connect_ray(address) as cluster:
        cluster_workers = plan_workers(cluster, workers, plan.model.device)
        say(f"Ray at {address}: {cluster_workers.count} workers")
        try:
            with Bar("listing") as bar:
                return index_on_ray(
                    [path.resolve() for path in paths],
                    store,
                    plan,
                    ray=cluster,
                    workers=cluster_workers,
                    hook=IndexProgress(bar),
                    prune=prune,
                )
        except KeyboardInterrupt:
            raise _report_interruption(store) from None


def _report_interruption(store: str) -> typer.Exit:
    typer.echo(f"\ninterrupted; what was committed is safe in {store}: run it again to go on", err=True)
    return typer.Exit(130)


def _finish(report: "IndexReport", store: str, *, ocr: bool) -> None:
    _summarize(report, store, ocr=ocr)
    _exit_if_incomplete(report)


def _exit_if_incomplete(report: "IndexReport") -> None:
    if report.failures or report.without_vectors:
        raise typer.Exit(SOME_FAILED)


def _choose_retriever(name: str | None, store: str) -> str | None:
    """The named retriever, else the one whose vectors the store holds."""
    from ridgerank.store.vector_columns import find_vector_origin

    stored = find_vector_origin(store)
    if name is None and stored is not None:
        say(f"{store} holds vectors of {stored.source}: new pages get theirs, too")
        name = stored.source
    return name


def _load_encoder(
    name: str | None, store: str, *, device: str | None, dtype: "torch.dtype | None"
) -> "MultiVectorEncoder | None":
    """The encoder of the named retriever, else of the one whose vectors the store holds, if any."""
    name = _choose_retriever(name, store)
    if name is None:
        return None
    from ridgerank.retrievers.encoders import load_encoder

    return load_encoder(name, device=device, dtype=dtype)


def _make_recognizer() -> "Recognizer":
    """OCR with a cache of texts in the user's cache folder."""
    from ridgerank.cache_folder import cache_folder
    from ridgerank.documents.ocr import Recognizer

    return Recognizer(cache=cache_folder("ocr"))


def _summarize(report: "IndexReport", store: str, *, ocr: bool, calibrated: bool = False) -> None:
    facts = [f"{report.added} pages added", f"{report.skipped} stored before"]
    if report.embedded:
        facts.append(f"{report.embedded} of them given vectors")
    if report.replaced:
        facts.append(f"{report.replaced} of changed files replaced")
    if report.removed:
        facts.append(f"{report.removed} removed")
    if report.copies:
        facts.append(f"{report.copies} copies of the same content")
    if report.skipped_files:
        facts.append(f"{report.skipped_files} files of other types passed over")
    if report.failures:
        facts.append(f"{len(report.failures)} not read")
    say(f"{store}: {', '.join(facts)}")
    for line in report.renamed:
        say(line)
    if report.without_vectors:
        warn(
            f"{len(report.without_vectors)} stored pages have no vectors, {report.without_vectors[0]} among "
            "them: their documents were not given, so they cannot be rendered again; give them, or --prune"
        )
    if report.removed and not calibrated:
        warn_of_stale_calibrations(store, report.removed)
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
        say(f"{format_speed(report.added, report.seconds)}, {size:.2f} MB a page")

"""`ridgerank index`: documents into a store."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ridgerank.cli.calibrate import calibration_progress, print_report
from ridgerank.cli.options import Device, Dtype, Ray, Store, Workers, default_backbone
from ridgerank.cli.progress_bars import Bar, IndexProgress

if TYPE_CHECKING:
    import torch

    from ridgerank.calibration.calibrated_index import IndexOptions
    from ridgerank.documents.ocr import Recognizer
    from ridgerank.indexing.progress import IndexReport
    from ridgerank.retrievers.encoders.base import MultiVectorEncoder
    from ridgerank.scaleout.encoding_worker import EncodingPlan

SOME_FAILED = 3
"""Exit status when the work was done but some files could not be read."""


def index_command(
    paths: Annotated[list[Path], typer.Argument(help="PDFs, images, folders of both.", show_default=False)],
    store: Store,
    backbone: Annotated[
        str | None,
        typer.Option(help="Model: a folder, a hub name (owner/name) or a short name.", show_default=False),
    ] = None,
    exit_layer: Annotated[
        int | None, typer.Option(help="Read pages to this layer. [default: 21, or 3/4 of a smaller model]")
    ] = None,
    join_layer: Annotated[int, typer.Option(help="Below it the query runs alone; 0 is the paper.")] = 0,
    keep: Annotated[
        str,
        typer.Option(
            help="Positions of the page to keep: a rule (stride, value-norm, value-distance, ink, spread, "
            "informative) and a fraction."
        ),
    ] = "stride 1/3",
    bits: Annotated[
        str,
        typer.Option(help="Bits of a number: 8 (the paper), 4, 3, 2, keys/values 4/2, or '4 group 32'."),
    ] = "8",
    device: Device = None,
    dtype: Dtype = None,
    max_pixels: Annotated[
        int | None, typer.Option(help="Pixels of a page image. [default: what suits the model]")
    ] = None,
    page_text: Annotated[
        str | None,
        typer.Option(help="Text of a page that a text model reads: head or ends, and tokens. [head 512]"),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Prompt of a text model. [default: what its tokenizer speaks]")
    ] = None,
    ocr: Annotated[
        bool, typer.Option("--ocr", help="Read pages without a text layer off their image (slow, cached).")
    ] = False,
    retriever: Annotated[
        str | None,
        typer.Option(
            help="Late interaction model whose vectors to store, too. [default: the store's, if any]"
        ),
    ] = None,
    pool: Annotated[
        int | None,
        typer.Option(help="Average so many of a page's vectors into one. [default: 1, all of them]"),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Calibrate, too, while pages are read anyway.")
    ] = False,
    queries: Annotated[
        Path | None, typer.Option(help="With --calibrate: its queries. [default: made from the pages]")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Afterwards the store holds these paths' pages and no others.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="Processes that render. [default: one a core]")
    ] = None,
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

    With `--calibrate` the full-depth targets that calibrating needs are taken on the way; `ridgerank
    calibrate` afterwards then reads no page again.

    With `--ray` pages are read by the workers of a cluster, which must see the documents and the store under
    the same paths or URLs; the store is the one a single machine makes.

    Example: `ridgerank index reports/ --store pages --backbone Qwen/Qwen2.5-VL-7B-Instruct`
    """
    from ridgerank.store.number_format import NumberFormat
    from ridgerank.store.pruning import Keep

    # Before the heavy imports, so that a mistake is reported at once.
    keep_rule, numbers = Keep.parse(keep), NumberFormat.parse(bits)
    if queries is not None and not calibrate:
        raise typer.BadParameter("queries are for --calibrate", param_hint="--queries")
    from ridgerank.runs.queries import read_queries

    calibration_queries = None if queries is None else read_queries(queries)
    from ridgerank.backbones.model_settings import ModelSettings

    name = backbone or default_backbone()
    model_settings = ModelSettings(name, device, dtype, max_pixels, page_text, prompt)
    if ray is not None:
        if calibrate:
            raise typer.BadParameter(
                "not with --ray; use `ridgerank calibrate --ray` after it", param_hint="--calibrate"
            )
        from ridgerank.scaleout.encoding_worker import EncodingPlan

        retriever, pool_factor = _choose_retriever(retriever, pool, store)
        plan = EncodingPlan(model_settings, keep, exit_layer, join_layer, retriever, pool_factor, ocr, bits)
        _finish(_index_on_ray(ray, workers, paths, store, plan, prune=prune), store, ocr=ocr)
        return
    from ridgerank.backbones.load import parse_dtype

    recognizer = _make_recognizer() if ocr else None
    encoder = _load_encoder(retriever, pool, store, device=device, dtype=parse_dtype(dtype))
    model = model_settings.load()
    try:
        with Bar("listing") as bar:
            hook = IndexProgress(bar)
            options: IndexOptions = {
                "exit_layer": exit_layer,
                "join_layer": join_layer,
                "keep": keep_rule,
                "numbers": numbers,
                "prune": prune,
                "processes": processes,
                "recognizer": recognizer,
            }
            if calibrate:
                from ridgerank.calibration.calibrated_index import index_with_targets

                report = index_with_targets(
                    paths, store, model, encoder=encoder, queries=calibration_queries, hook=hook, **options
                )
            else:
                from ridgerank.indexing.index import index_documents

                report = index_documents(paths, store, model, embedder=encoder, hook=hook, **options)
    except KeyboardInterrupt:
        raise _report_interruption(store) from None
    _summarize(report, store, ocr=ocr)
    if calibrate:
        from ridgerank.calibration.calibrate import calibrate as calibrate_store

        with calibration_progress() as calibration_hook:
            calibration = calibrate_store(
                store,
                backbone=model,
                queries=calibration_queries,
                queries_from="" if queries is None else f"from {queries.name}",
                device=device,
                dtype=dtype,
                hook=calibration_hook,
            )
        print_report(calibration, store, "default", as_json=False)
    _exit_if_incomplete(report)


def _index_on_ray(
    address: str, workers: int | None, paths: list[Path], store: str, plan: "EncodingPlan", *, prune: bool
) -> "IndexReport":
    from ridgerank.scaleout.ray_cluster import connect_ray, plan_workers
    from ridgerank.scaleout.ray_indexing import index_on_ray

    with connect_ray(address) as cluster:
        cluster_workers = plan_workers(cluster, workers, plan.model.device)
        typer.echo(f"Ray at {address}: {cluster_workers.count} workers", err=True)
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


def _choose_retriever(name: str | None, pool: int | None, store: str) -> tuple[str | None, int]:
    """The named retriever, else the one whose vectors the store holds, and its pool factor."""
    from ridgerank.store.vector_columns import find_vector_origin

    stored = find_vector_origin(store)
    if name is None and stored is not None:
        typer.echo(f"{store} holds vectors of {stored.source}: new pages get theirs, too", err=True)
        name = stored.source
    return name, pool if pool is not None else 1 if stored is None else stored.pool_factor


def _load_encoder(
    name: str | None, pool: int | None, store: str, *, device: str | None, dtype: "torch.dtype | None"
) -> "MultiVectorEncoder | None":
    """The encoder of the named retriever, else of the one whose vectors the store holds, if any."""
    name, pool_factor = _choose_retriever(name, pool, store)
    if name is None:
        return None
    from ridgerank.retrievers.encoders.load import load_encoder

    return load_encoder(name, device=device, dtype=dtype, pool_factor=pool_factor)


def _make_recognizer() -> "Recognizer":
    """OCR with a cache of texts in the user's cache folder."""
    from ridgerank.documents.ocr import Recognizer

    home = os.environ.get("XDG_CACHE_HOME")
    return Recognizer(cache=(Path(home) if home else Path.home() / ".cache") / "ridgerank" / "ocr")


def _summarize(report: "IndexReport", store: str, *, ocr: bool) -> None:
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
    typer.echo(f"{store}: {', '.join(facts)}", err=True)
    for line in report.renamed:
        typer.echo(line, err=True)
    if report.without_vectors:
        typer.echo(
            f"{len(report.without_vectors)} stored pages have no vectors, {report.without_vectors[0]} among "
            "them: their documents were not given, so they cannot be rendered again; give them, or --prune",
            err=True,
        )
    if report.without_text:
        blank = f"{len(report.without_text)} stored pages have no text, {report.without_text[0]} among them"
        advice = (
            "OCR found none on them either, or they were stored before without it"
            if ocr
            else "read them off their image: index into a new store with --ocr (pip install 'ridgerank[ocr]')"
        )
        typer.secho(
            f"warning: {blank}: to a model that reads text they are blank pages; {advice}",
            err=True,
            fg="yellow",
            bold=True,
        )
    if report.added:
        speed = report.added / report.seconds
        size = report.prefix_bytes / report.added / 1e6
        typer.echo(f"{speed:.2f} pages/s, {size:.2f} MB a page", err=True)

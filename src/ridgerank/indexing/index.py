"""Documents into a store: list, skip stored pages, render, encode, compress, commit.

Indexing may be interrupted at any time. A second run gives the same store as an uninterrupted one: pages go
through the model in batches cut from the whole list, not from the pages that remain, and a batch is
committed whole.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import ModelSettings, remember_place
from ridgerank.documents.ocr import Recognizer, has_little_text
from ridgerank.documents.render import PageRef, list_pages
from ridgerank.documents.sources import DocumentMetadata, Failure, SkippedFile, escape_name
from ridgerank.errors import BackboneError, LineageMismatch, StoreError
from ridgerank.indexing.encode import (
    EncodedPages,
    EncodingDescription,
    Listing,
    PageEncoder,
    describe_encoding,
    group_for_commits,
    read_texts,
    render_batches,
    sample_batches,
)
from ridgerank.lineage import Keep, StoragePreset, StorageSetting
from ridgerank.processes import usable_cores
from ridgerank.records import document_name
from ridgerank.store.lance_dataset import find_lineage, read_basis
from ridgerank.store.layout import MODEL_SHAPES, Basis, count_page_bytes
from ridgerank.store.page_filter import labels_of
from ridgerank.store.page_store import PageRow, PageStore
from ridgerank.store.probe import require_same_pages, write_probe
from ridgerank.store.sidecar import remember_sources, rerender_pages, source_owners
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import PageEmbedder

MIN_INDEXED_PAGES = 10_000
"""A store of at least this size gets indices: over page ids and references, to look pages up without listing
all of them, and over vectors. The vectors of a smaller store are searched exactly, block by block."""

_PENDING_PAGES = 32


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far indexing is: passed to `progress` after listing, after each commit and for each failure."""

    done: int = 0
    """Pages under the paths that the store has, vectors included if a retriever is given."""
    total: int = 0
    nbytes: int = 0
    failure: Failure | None = None
    """The file or page that could not be read just now; indexing continues."""
    searchable: bool = False
    """From now on every page can be found by its text; a search encodes those it needs."""


ProgressCallback = Callable[[IndexProgress], None]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The result of indexing."""

    pages: int
    added: int
    skipped: int
    embedded: int
    """Pages the store had already, that got vectors."""
    without_vectors: tuple[str, ...]
    """Stored pages that still have no vectors, by name: they are not among the documents given."""
    without_text: tuple[str, ...]
    """Stored pages that are blank to a model that reads text, by name."""
    copies: int
    """Further references to the same content: stored once, found by every reference."""
    removed: int
    """Pages that were not under the paths, with `prune`."""
    replaced: int
    """Pages of files that have changed since: removed."""
    skipped_files: int
    prefix_bytes: int
    seconds: float
    failures: tuple[Failure, ...]
    renamed: tuple[str, ...]
    """A line for each file whose name belongs to another one: its longer name, and why."""


def index_documents(
    paths: str | Path | Iterable[str | Path],
    store: str | Path,
    backbone: Backbone | str | None = None,
    *,
    exit_layer: int | None = None,
    keep: Keep | None = None,
    quality: float | None = None,
    preset: StoragePreset = "small",
    like: str | Path | None = None,
    prune: bool = False,
    processes: int | None = None,
    batch_pages: int | None = None,
    recognizer: Recognizer | None = None,
    embedder: PageEmbedder | None = None,
    only: Collection[str] | None = None,
    progress: ProgressCallback | None = None,
) -> IndexReport:
    """Bring every page under `paths`, files and folders, into a store; one that is not there is created.

    The backbone is a loaded one, or the name or folder to load it from. A new store needs one, and what
    `exit_layer`, `keep` and `quality` leave open is there as the `preset` says, or as in the store `like`,
    whose basis it takes; pages that are added are read and stored as those it has.
    Stored pages are neither rendered nor encoded again. The pages of a file that has changed are replaced.
    A file whose name belongs to another file gets its folder in front of it. With `prune`, pages that are not
    under `paths` are removed, except pages of files that could not be read this time. With a `recognizer`,
    pages without a text layer get the text recognized in their image. With an `embedder`, every page also
    gets a retriever's vectors, from the same rendered image.

    Every new page is stored with its text first, so that it can be found. With `only`, just these pages (by
    id) are encoded, besides those a basis is fitted to; another indexing goes on from there.
    """
    lineage = find_lineage(str(store))
    if not isinstance(backbone, Backbone):
        if lineage is not None:
            backbone = ModelSettings.from_lineage(lineage, name=backbone).load()
        elif backbone is None:
            raise BackboneError(
                f"{describe_models(str(store))}\nName one, or pass a loaded one, as backbone."
            )
        else:
            backbone = load_backbone(backbone)
    if (model := lineage or (None if like is None else find_lineage(str(like)))) is not None:
        named = model.storage
    else:
        layers, reads_text = backbone.geometry.layers, backbone.reads_text
        named = StorageSetting.from_preset(preset, layers=layers, reads_text=reads_text)
    storage = named.override(keep=keep, quality=quality, exit_layer=exit_layer)
    basis = find_basis(str(store), None if like is None else str(like), storage)
    page_encoder = PageEncoder.create(backbone, embedder, storage, basis)
    processes = min(8, usable_cores()) if processes is None else processes  # 0 leaves files to this process
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    batch_pages = batch_pages or describe_encoding(page_encoder).batch_pages
    listing, sampled, lost = None, EncodedPages(), list[Failure]()
    start = time.perf_counter()
    if page_encoder.needs_basis:
        listing = list_new_documents(paths, progress, processes)
        numbered = sample_batches(listing, batch_pages)
        batches = render_batches(numbered, lost.append, recognizer, backbone.page_budget, processes)
        page_encoder, sampled = page_encoder.fit(batches, listing, lost)

    def encode(task: IndexTask) -> Iterator[EncodedPages]:
        numbered = task.listing.number_batches(task.done, batch_pages)
        for batch in render_batches(numbered, task.failed, recognizer, backbone.page_budget, processes):
            yield page_encoder.encode(batch, task.listing, task.stored)

    report = run_index(
        paths,
        str(store),
        describe_encoding(page_encoder),
        encode,
        listed=listing,
        sampled=sampled,
        lost=lost,
        progress=progress,
        prune=prune,
        processes=processes,
        only=only,
        searchable=partial(_begin_store, str(store), backbone, None if lineage is None else processes),
    )
    if lineage is not None:
        remember_place(lineage, backbone.name)
    _begin_store(str(store), backbone)
    return replace(report, seconds=time.perf_counter() - start)


def _begin_store(store: str, backbone: Backbone, processes: int | None = None) -> None:
    """Keep the probe of a store once pages are encoded; with `processes`, check an older store first."""
    with PageStore.open(store) as opened:
        if processes is not None and opened.pending():
            require_same_pages(opened, backbone, processes=processes)
        write_probe(opened, backbone)


def encode_pending(
    store: str,
    backbone: Backbone,
    page_ids: Iterable[str],
    *,
    seconds: float,
    progress: Callable[[int], None],
) -> tuple[int, float]:
    """Encode those of these pages that are pending, until time is over: how many, and in what time."""
    start, encoded = time.perf_counter(), 0
    opened = PageStore.open(store)
    encoder = PageEncoder(backbone, None, opened.lineage.storage, opened.basis)
    with StoreWriter(store, opened.lineage, opened.basis) as writer:
        pending, labels = opened.pending(), writer.labels()
        wanted = [page_id for page_id in page_ids if page_id in pending]
        for first in range(0, len(wanted), _PENDING_PAGES):
            ids = wanted[first : first + _PENDING_PAGES]
            stored = {page.page_id: page for page in opened.pages(ids)}
            rows: list[PageRow] = []
            for pages in rerender_pages(opened, ids, max_pixels=backbone.page_budget):
                packed = zip(pages, encoder.compress(pages), strict=True)
                rows += [PageRow(stored[page.page_id], prefix) for page, prefix in packed]
            writer.append(rows)
            writer.set_labels({page_id: labels[page_id] for page_id in stored if page_id in labels})
            encoded += len(rows)
            progress(len(rows))
            if time.perf_counter() - start > seconds:
                break
        writer.reclaim()
    return encoded, time.perf_counter() - start


def find_basis(store: str, like: str | None, storage: StorageSetting) -> Basis | None:
    """The basis of a store, or of the store it is to be like; None if one has to be fitted."""
    for uri in filter(None, (store, like)):
        if (lineage := find_lineage(uri)) is not None:
            if replace(lineage.storage, basis=None) != replace(storage, basis=None):
                raise LineageMismatch(
                    f"the page store at {uri} was made with {lineage.storage}, not with {storage}; use the "
                    "settings it was made with"
                )
            return read_basis(uri, lineage)
    if like is not None:
        raise StoreError(f"no page store at {like}, whose basis was to be taken; check the path")
    return None


def list_new_documents(
    paths: Iterable[str | Path], progress: ProgressCallback | None, processes: int
) -> Listing:
    """The pages under the paths, to sample from; what cannot be read is reported to `progress`."""
    report = progress or (lambda _: None)
    return list_documents(paths, lambda failure: report(IndexProgress(failure=failure)), processes=processes)


def list_documents(
    paths: Iterable[str | Path], failed: Callable[[Failure], None], *, processes: int
) -> Listing:
    """List all pages under the paths; `failed` is called with what could not be read."""
    listing = Listing()
    for item in list_pages(paths, processes=min(processes, 2)):  # quick compared with rendering
        match item:
            case PageRef():
                listing.documents.setdefault(item.source.path, []).append(item)
            case Failure():
                listing.failures.append(item)
                failed(item)
            case SkippedFile():
                listing.skipped_files += 1
    listing.set_names({path: [refs[0].source.name] for path, refs in listing.documents.items()})
    return listing


def name_documents(
    listing: Listing, owners: Mapping[str, str], stored: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Give every file its names, by `owners` of names and `stored` references; a line for each longer one."""
    page_ids_by_name: dict[str, set[str]] = {}
    for page_id, references in stored.items():
        for reference in references:
            page_ids_by_name.setdefault(document_name(reference), set()).add(page_id)
    names_of: dict[str, list[str]] = {}
    for name, owner in owners.items():
        if name in page_ids_by_name:
            names_of.setdefault(owner, []).append(name)
    taken = page_ids_by_name.keys() | {refs[0].source.name for refs in listing.documents.values()}
    names: dict[Path, list[str]] = {}
    renamed: list[str] = []
    for path, refs in listing.documents.items():
        name, file = refs[0].source.name, os.path.realpath(path)
        owner = owners.get(name, file)
        is_free = owner == file or name not in page_ids_by_name
        if not is_free and page_ids_by_name[name] <= {ref.page_id for ref in refs}:
            is_free = not Path(owner).exists()  # the file was moved
        aliases = names_of.get(file, [])
        if not is_free and not aliases:
            longer = next(each for each in _longer_names(path, name) if each not in taken)
            renamed.append(f"{path} is stored as {longer}: the shorter name is that of {owner}")
            aliases = [longer]
            taken.add(longer)
        names[path] = list(dict.fromkeys([name, *aliases] if is_free else aliases))
    listing.set_names(names)
    return tuple(renamed)


def _longer_names(path: Path, name: str) -> Iterator[str]:
    """The name with more and more folders in front of it, then numbered."""
    parts = path.parts
    for start in range(len(parts) - len(Path(name).parts) - 1, 0, -1):
        yield escape_name("/".join(parts[start:]))
    for number in count(2):
        yield f"{name} ({number})"


@dataclass(frozen=True, slots=True)
class IndexTask:
    """What remains to be encoded: not what is `stored` with a prefix, nor what is `done` altogether."""

    listing: Listing
    stored: frozenset[str]
    done: frozenset[str]
    failed: Callable[[Failure], None]


def run_index(
    paths: Iterable[str | Path],
    uri: str,
    description: EncodingDescription,
    encode: Callable[[IndexTask], Iterable[EncodedPages]],
    *,
    progress: ProgressCallback | None,
    prune: bool = False,
    processes: int = 1,
    listed: Listing | None = None,
    sampled: EncodedPages | None = None,
    lost: Sequence[Failure] = (),
    only: Collection[str] | None = None,
    searchable: Callable[[], None] = lambda: None,
) -> IndexReport:
    """List documents, commit the missing pages as `encode` makes them, then update references and indices.

    What is `listed` already is not listed again; `sampled` pages of it are encoded already, and `lost` ones
    could not be read. `searchable` is called when all pages are stored with their text.
    """
    start = time.perf_counter()
    paths = list(paths)
    metadata = DocumentMetadata(paths)
    origin = description.origin
    added = embedded = prefix_bytes = nbytes = done_before = total = 0

    def notify(failure: Failure | None = None) -> None:
        if progress is not None:
            progress(IndexProgress(done_before + added + embedded, total, nbytes, failure))

    def fail(failure: Failure) -> None:
        listing.failures.append(failure)
        notify(failure)

    with StoreWriter(uri, description.lineage, description.basis) as writer:
        lacking = frozenset() if origin is None else writer.open_vectors(origin)
        listing = listed or list_documents(paths, notify, processes=processes)
        stored = writer.page_ids() - writer.pending()
        owners = source_owners(uri)
        names = {failure.reference for failure in lost}
        unread = {page_id for page_id, ref in listing.refs.items() if ref.reference in names}
        renamed = name_documents(listing, owners, writer.references())
        remember_sources(uri, listing.paths)
        skipped = sum(page_id in stored for page_id in listing.refs)
        done = stored - lacking
        done_before, total = sum(page_id in done for page_id in listing.refs), len(listing.refs)
        notify()
        labels = list_labels(listing, metadata)
        if sampled is not None and sampled.rows:
            rows = [name_row(row, listing) for row in sampled.rows if row.page.page_id not in stored]
            prefix_bytes += writer.append(rows)
            nbytes = prefix_bytes + sampled.vector_bytes
            added, done = len(rows), done | {row.page.page_id for row in rows}
            stored |= done
            notify()
        for failure in lost:
            fail(failure)
        known = writer.page_ids() | unread
        new = [ref for page_id, ref in listing.refs.items() if page_id not in known]
        for pending in read_texts(new, listing, fail, processes):
            writer.append(pending)
        done |= listing.refs.keys() - writer.page_ids()  # no page is tried twice: each try may take long
        searchable()
        if progress is not None and new:
            progress(IndexProgress(done_before + added, total, nbytes, searchable=True))
        if only is not None:
            done |= listing.refs.keys() - only
        for encoded in group_for_commits(encode(IndexTask(listing, stored, done, fail))):
            new_bytes = writer.append(encoded.rows)
            writer.set_vectors(encoded.vectors)
            added, embedded = added + len(encoded.rows), embedded + len(encoded.vectors)
            prefix_bytes, nbytes = prefix_bytes + new_bytes, nbytes + new_bytes + encoded.vector_bytes
            notify()
        if only is None:
            writer.remove(sorted(writer.pending() & listing.refs.keys()))  # they could not be read
        if new:
            writer.reclaim()
        files = {os.path.realpath(failure.path) for failure in listing.failures if failure.path is not None}
        unread_names = {failure.reference for failure in listing.failures}
        unread_names |= {name for name, owner in owners.items() if owner in files}  # those of earlier runs
        replaced, pruned = update_references(writer, listing, unread_names, prune=prune)
        before, stored = writer.labels(), writer.page_ids()
        now = {page_id: tuple(sorted(each)) for page_id, each in labels.items() if page_id in stored}
        writer.set_labels({page_id: each for page_id, each in now.items() if each != before.get(page_id, ())})
        lacking = frozenset() if origin is None else writer.open_vectors(origin)
        references = writer.references() if lacking else {}
        without_vectors = tuple(sorted((*references[page_id], page_id)[0] for page_id in lacking))
        if len(writer.page_ids()) >= MIN_INDEXED_PAGES:
            writer.index_pages()
            if origin is not None and (added or embedded):
                writer.index_vectors()
    without_text: list[str] = []
    if description.lineage.page_text is not None:  # the model reads text
        with PageStore.open(uri) as store:
            blank = [page_id for page_id, text in store.texts().items() if has_little_text(text)]
            without_text = sorted(store.references(blank))
    return IndexReport(
        pages=total,
        added=added,
        skipped=skipped,
        embedded=embedded,
        without_vectors=without_vectors,
        without_text=tuple(without_text),
        copies=sum(len(names) - 1 for names in listing.references.values()),
        removed=pruned,
        replaced=replaced,
        renamed=renamed,
        skipped_files=listing.skipped_files,
        prefix_bytes=prefix_bytes,
        seconds=time.perf_counter() - start,
        failures=tuple(listing.failures),
    )


def name_row(row: PageRow, listing: Listing) -> PageRow:
    """A row that was made before documents had their names."""
    ref = listing.refs[row.page.page_id]
    references = tuple(listing.references[ref.page_id])
    return replace(row, page=replace(row.page, references=references, source=ref.source.name))


MODEL_CHOICES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": ("smollm2-135m", "reads the text of pages, for CPUs"),
    "Qwen/Qwen2.5-VL-3B-Instruct": ("qwen2.5-vl-3b", "looks at page images, 7.6 GB of weights"),
    "Qwen/Qwen2.5-VL-7B-Instruct": ("qwen2.5-vl-7b", "looks at page images, 16.6 GB of weights"),
}


def describe_models(store: str) -> str:
    """The error message for a new store without a model; bytes are arithmetic (`count_page_bytes`)."""
    lines = [f"there is no page store at {store} yet, and a new one needs a model. Three to choose from:"]
    for name, (short_name, reads) in MODEL_CHOICES.items():
        shape = MODEL_SHAPES[short_name]
        setting = StorageSetting.from_preset("small", layers=shape.layers, reads_text=shape.reads_text)
        lines.append(f"  {name:36} {reads}: about {count_page_bytes(shape, setting) / 1e6:.2f} MB a page")
    return "\n".join(lines)


def list_labels(listing: Listing, metadata: DocumentMetadata) -> dict[str, set[str]]:
    """Page id → its labels."""
    labels_by_page: dict[str, set[str]] = {}
    for path, refs in listing.documents.items():
        fields = metadata.fields(path).items()
        labels = {label for key, value in fields for label in labels_of(key, value, of=f" of {path}")}
        for ref in refs:
            labels_by_page.setdefault(ref.page_id, set()).update(labels)
    return labels_by_page


def update_references(
    writer: StoreWriter, listing: Listing, unread: Collection[str], *, prune: bool
) -> tuple[int, int]:
    """Give every stored page the references it has now; a page that loses its last one is removed.

    A reference stays if it is listed for this page, if its file is not under the paths, and if its file or
    folder is among `unread`, which could not be read whole this time. With `prune`, files that are not under
    the paths have no pages either. Returns how many pages were replaced, as their files have changed, and
    how many were pruned.
    """
    listed_references = {name for references in listing.references.values() for name in references}
    listed_documents = {document_name(name) for name in listed_references}
    changed: dict[str, tuple[str, ...]] = {}
    replaced: list[str] = []
    pruned: list[str] = []
    for page_id, references in writer.references().items():
        listed = listing.references.get(page_id, [])
        outdated = [name for name in references if name in listed_references]
        kept = []
        for name in set(references).difference(listed_references):
            if _is_unread(name, unread) or not (prune or document_name(name) in listed_documents):
                kept.append(name)
            elif document_name(name) in listed_documents:
                outdated.append(name)
        updated = tuple(sorted({*listed, *kept}))
        if updated != tuple(sorted(references)) or (prune and not updated):
            if updated:
                changed[page_id] = updated
            else:
                (replaced if outdated else pruned).append(page_id)
    if pruned and not listing.refs and len(pruned) == len(writer.page_ids()):
        raise StoreError(
            f"no page was found, and pruning would remove all {len(pruned)} of the page store at "
            f"{writer.uri}; check the paths, or remove the store's folder"
        )
    # Removed first: a kill in between leaves names to be put right, not pages without any.
    writer.remove([*replaced, *pruned])
    writer.set_references(changed)
    if replaced or pruned:
        writer.reclaim()
    return len(replaced), len(pruned)


def _is_unread(reference: str, unread: Collection[str]) -> bool:
    document = document_name(reference)
    folders = (document[:end] for end, character in enumerate(document) if character == "/")
    return any(name in unread for name in (reference, document, *folders))

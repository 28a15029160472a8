"""Documents into a store: what is skipped, what is added, what survives a kill."""

import inspect
import multiprocessing
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageStat

from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.backbones.model_settings import ModelSettings
from ridgerank.cli.index import resolve_settings
from ridgerank.documents.render import render_pages
from ridgerank.errors import BackboneError, LineageMismatch, StoreError
from ridgerank.indexing import encode
from ridgerank.indexing.index import IndexProgress, IndexReport, index_documents
from ridgerank.lineage import StorageSetting
from ridgerank.store import store_writer
from ridgerank.store.layout import pack
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.vector_columns import VectorOrigin
from tests.conftest import write_pdf
from tests.kill_points import killed_at


def index(
    paths: list[Path],
    store: Path,
    backbone: Backbone,
    **options: Any,  # noqa: ANN401 (passed on)
) -> IndexReport:
    return index_documents(paths, str(store), backbone, processes=0, **options)


def contents(store: Path | str) -> dict[str, tuple[Any, ...]]:
    """Everything a store holds, in order, prefixes byte by byte."""
    with PageStore.open(str(store)) as opened:
        ids = opened.page_ids()
        pages = opened.pages(ids)
        blocks = [pack(prefix).tobytes() for prefix in opened.read_prefixes(ids)]
    return {
        page.page_id: (page.references, page.source, page.text, page.thumbnail, block)
        for page, block in zip(pages, blocks, strict=True)
    }


def names(store: Path) -> list[str]:
    return sorted(name for row in contents(store).values() for name in row[0])


def test_a_second_run_encodes_only_what_is_new(
    tmp_path: Path, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, fit = [0.0], encode.PageEncoder.fit

    def late(*given: Any) -> Any:  # noqa: ANN401
        now.append(9.0)
        return fit(*given)

    monkeypatch.setattr("time.perf_counter", lambda: now[-1])
    monkeypatch.setattr(encode.PageEncoder, "fit", late)
    write_pdf(tmp_path / "in/a.pdf", pages=3)
    first = index([tmp_path / "in"], tmp_path / "store", small_backbone)
    assert first.seconds == 9.0, "the pages that the basis is fitted on take time, too"
    before = contents(tmp_path / "store")
    assert names(tmp_path / "store") == ["a.pdf#1", "a.pdf#2", "a.pdf#3"]
    write_pdf(tmp_path / "in/b.pdf", pages=2, seed=1)
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone)
    assert (report.added, report.skipped) == (2, 3)
    after = contents(tmp_path / "store")
    assert {page_id: after[page_id] for page_id in before} == before


def test_a_copy_of_a_file_is_stored_once_and_found_by_both_names(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    original = write_pdf(tmp_path / "in/a.pdf", pages=2)
    (tmp_path / "in/copy.pdf").write_bytes(original.read_bytes())
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone)
    assert (report.added, report.copies) == (2, 2)
    with PageStore.open(str(tmp_path / "store")) as store:
        assert store.find("a.pdf#2") == store.find("copy.pdf#2")


def test_a_new_store_takes_the_settings_and_the_basis_of_another(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    index([write_pdf(tmp_path / "a.pdf", pages=3)], first, small_backbone, quality=0.5)
    index([write_pdf(tmp_path / "b.pdf", pages=2, seed=1)], second, small_backbone, like=first)
    with PageStore.open(str(first)) as one, PageStore.open(str(second)) as other:
        assert one.lineage.storage == other.lineage.storage
        assert one.lineage.storage.basis is not None
    with pytest.raises(StoreError, match="no page store at"):
        index([tmp_path / "b.pdf"], tmp_path / "third", small_backbone, like=tmp_path / "nowhere")


def test_pruning_removes_pages_not_under_the_paths_but_for_a_file_that_cannot_be_read_this_time(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    broken, gone = (write_pdf(tmp_path / f"in/{name}.pdf", pages=2, seed=s) for s, name in enumerate("ab"))
    index([tmp_path / "in"], tmp_path / "store", small_backbone)
    broken.write_bytes(b"")
    gone.unlink()
    assert index([tmp_path / "in"], tmp_path / "store", small_backbone).removed == 0
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone, prune=True)
    assert report.removed == 2
    assert names(tmp_path / "store") == ["a.pdf#1", "a.pdf#2"]


def test_failures_and_commits_are_reported_and_the_rest_goes_on(
    tmp_path: Path, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_COMMIT_PAGES", 2)
    write_pdf(tmp_path / "in/good.pdf", pages=3)
    (tmp_path / "in/empty.pdf").touch()
    (tmp_path / "in/fake.pdf").write_text("not a PDF")
    (tmp_path / "in/notes.txt").write_text("passed over")
    seen: list[IndexProgress] = []
    paths = [tmp_path / "in", tmp_path / "absent"]
    report = index(
        paths, tmp_path / "store", small_backbone, progress=seen.append, batch_pages=2, preset="paper"
    )
    assert (report.added, report.skipped_files, len(report.failures)) == (3, 1, 3)
    assert [state.failure for state in seen if state.failure is not None] == list(report.failures)
    assert all("\n" not in str(failure) for failure in report.failures)
    commits = [state for state in seen if state.failure is None and not state.searchable]
    assert [(state.done, state.total) for state in commits] == [(0, 3), (2, 3), (3, 3)]
    assert commits[-1].nbytes == report.prefix_bytes > commits[1].nbytes > commits[0].nbytes == 0


def test_a_new_store_of_which_no_page_can_be_read_says_why(tmp_path: Path, small_backbone: Backbone) -> None:
    Image.new("RGB", (1, 9000)).save(tmp_path / "thread.png")
    with pytest.raises(StoreError, match=r"no page can be read \(thread\.png#1: a page of 1 x 9000"):
        index([tmp_path / "thread.png"], tmp_path / "store", small_backbone)


def test_layers_the_model_lacks_are_refused(tmp_path: Path, small_backbone: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"exit layer 99 of a model of 5"):
        index([tmp_path], tmp_path / "store", small_backbone, exit_layer=99)
    assert not (tmp_path / "store").exists()


def _index_in_child(paths: list[Path], store: Path, model: Path, call: int, count: Path) -> None:
    encode._COMMIT_PAGES = 4
    backbone = load_backbone(model, device="cpu", max_pixels=30 * 28 * 28)
    with killed_at(call, within="ridgerank.store.store_writer") as calls:
        index(paths, store, backbone, batch_pages=2)
    count.write_text(str(calls[0]))


def test_killed_at_random_points_and_run_again_the_store_is_the_same(
    tmp_path: Path, model_folder: Path
) -> None:
    for number in range(4):
        write_pdf(tmp_path / f"in/{number}.pdf", pages=11, seed=number)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ridgerank.backbones.load", "tests.indexing.test_index"])

    def run(store: Path, call: int = 0) -> int | None:
        arguments = ([tmp_path / "in"], store, model_folder, call, tmp_path / "calls")
        process = context.Process(target=_index_in_child, args=arguments)
        process.start()
        process.join()
        return process.exitcode

    assert run(tmp_path / "whole") == 0
    calls, expected = int((tmp_path / "calls").read_text()), contents(tmp_path / "whole")
    generator = random.Random(0)
    kills = halfway = 0
    for attempt in range(2):
        store = tmp_path / f"killed-{attempt}"
        while (ended := run(store, generator.randint(1, calls))) == -signal.SIGKILL:
            kills += 1
            if store.exists() and any(store.glob("_versions/*")):
                assert list(find_damage(str(store))) == []
                with PageStore.open(str(store)) as opened:
                    halfway += len(opened.pending()) > 0
        assert ended == 0
        assert list(contents(store).items()) == list(expected.items())
    assert kills >= halfway >= 2


class Embedder:
    """Vectors that tell a page's size and colours, and how many pages were looked at."""

    def __init__(self, fingerprint: str = "f", fail_after: int | None = None) -> None:
        self.origin = VectorOrigin("embedder", fingerprint, 4)
        self.looked_at = 0
        self._fail_after = fail_after

    def embed_pages(self, images: Sequence[Image.Image]) -> list[NDArray[np.float16]]:
        self.looked_at += len(images)
        if self._fail_after is not None and self.looked_at > self._fail_after:
            raise KeyboardInterrupt
        return [np.array([[*ImageStat.Stat(image).mean, image.width]] * 2, np.float16) for image in images]


def vectors(store: Path) -> dict[str, list[list[float]] | None]:
    with PageStore.open(str(store)) as opened:
        pages = opened.pages(opened.page_ids(), vectors=True)
    return {page.page_id: None if page.vectors is None else page.vectors.tolist() for page in pages}


def test_a_page_is_rendered_once_for_its_prefix_and_its_vectors(
    tmp_path: Path, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=6)
    index([tmp_path / "in"], tmp_path / "plain", small_backbone)
    Image.new("RGB", (1, 9000)).save(tmp_path / "in/thread.png")  # cannot be read, and is tried once
    rendered = []

    def watched(refs: Any, **options: Any) -> Any:  # noqa: ANN401
        for page in render_pages(refs, **options):
            rendered.append(page.reference)
            yield page

    monkeypatch.setattr(encode, "render_pages", watched)
    embedder = Embedder()
    report = index([tmp_path / "in"], tmp_path / "both", small_backbone, embedder=embedder)
    assert (report.added, report.embedded, report.without_vectors) == (6, 0, ())
    assert len(rendered) == len(set(rendered)) == embedder.looked_at + 1 == 7
    assert [failure.reference for failure in report.failures] == ["thread.png#1"]
    assert contents(tmp_path / "both") == contents(tmp_path / "plain")
    stored_vectors = vectors(tmp_path / "both").values()
    assert all(page_vectors is not None and len(page_vectors) == 2 for page_vectors in stored_vectors)


def test_a_retriever_added_later_reads_only_pages_that_lack_vectors(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=5)
    write_pdf(tmp_path / "elsewhere/b.pdf", pages=2, seed=1)
    index([tmp_path / "in", tmp_path / "elsewhere"], tmp_path / "store", small_backbone)
    write_pdf(tmp_path / "in/c.pdf", pages=2, seed=2)
    first, second, third = Embedder(), Embedder(), Embedder()
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone, embedder=first)
    assert (report.added, report.skipped, report.embedded, first.looked_at) == (2, 5, 5, 7)
    assert report.without_vectors == ("elsewhere/b.pdf#1", "elsewhere/b.pdf#2")
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone, embedder=second)
    assert (report.embedded, second.looked_at, len(report.without_vectors)) == (0, 0, 2)
    report = index([tmp_path / "elsewhere"], tmp_path / "store", small_backbone, embedder=third)
    assert (report.embedded, third.looked_at, report.without_vectors) == (2, 2, ())
    whole = index(
        [tmp_path / "in", tmp_path / "elsewhere"], tmp_path / "at once", small_backbone, embedder=Embedder()
    )
    assert whole.added == 9
    assert vectors(tmp_path / "store") == vectors(tmp_path / "at once")


def test_interrupted_while_embedding_the_next_run_ends_with_the_same_store(
    tmp_path: Path, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=10)
    monkeypatch.setattr(encode, "_COMMIT_PAGES", 4)
    for store, before in (("new", False), ("old", True)):
        if before:
            index([tmp_path / "in"], tmp_path / store, small_backbone, batch_pages=2, preset="paper")
        with pytest.raises(KeyboardInterrupt):
            index(
                [tmp_path / "in"], tmp_path / store, small_backbone,
                embedder=Embedder(fail_after=6), batch_pages=2, preset="paper",
            )  # fmt: skip
        again = Embedder()
        index(
            [tmp_path / "in"], tmp_path / store, small_backbone, embedder=again, batch_pages=2, preset="paper"
        )
        assert again.looked_at == 6
    assert vectors(tmp_path / "new") == vectors(tmp_path / "old")
    assert contents(tmp_path / "new") == contents(tmp_path / "old")


def test_another_retriever_is_refused_before_anything_is_read(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=1)
    index([tmp_path / "in"], tmp_path / "store", small_backbone, embedder=Embedder())
    other = Embedder("another")
    with pytest.raises(LineageMismatch, match="fingerprint: 'f' there, 'another' here"):
        index([tmp_path / "in"], tmp_path / "store", small_backbone, embedder=other)
    assert other.looked_at == 0


def test_a_large_store_gets_an_index_over_its_vectors(
    tmp_path: Path, small_backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=3)
    monkeypatch.setattr("ridgerank.indexing.index.MIN_INDEXED_PAGES", 3)
    built = []
    monkeypatch.setattr(
        store_writer.StoreWriter, "index_vectors", lambda self: built.append(len(self.page_ids()))
    )
    index([tmp_path / "in"], tmp_path / "store", small_backbone, embedder=Embedder())
    index([tmp_path / "in"], tmp_path / "store", small_backbone, embedder=Embedder())
    assert built == [3]


def test_the_library_and_the_command_store_pages_alike(model_folder: Path) -> None:
    default = inspect.signature(index_documents).parameters["preset"].default
    typed = resolve_settings(str(model_folder / "store"), ModelSettings(str(model_folder))).storage
    for of_text in (False, True):
        named = StorageSetting.from_preset(default, layers=9, reads_text=of_text)
        assert typed(layers=9, reads_text=of_text) == named

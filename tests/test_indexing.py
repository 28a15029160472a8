"""Documents into a store: what is skipped, what is added, what survives a kill."""

import multiprocessing
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgerank import indexing
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.documents.outcomes import Failure
from ridgerank.errors import BackboneError, LineageMismatch
from ridgerank.indexing import IndexPlan, IndexReport, index_documents
from ridgerank.store.keep import Keep
from ridgerank.store.layout import pack
from ridgerank.store.read import PageStore
from tests.conftest import write_pdf


@dataclass
class Seen:
    """A watcher that remembers."""

    plans: list[IndexPlan] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def planned(self, plan: IndexPlan) -> None:
        self.plans.append(plan)

    def committed(self, pages: int, nbytes: int) -> None:
        assert nbytes > 0
        self.commits.append(pages)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)


def index(
    paths: list[Path],
    store: Path,
    backbone: Backbone,
    **options: Any,  # noqa: ANN401 (passed on)
) -> IndexReport:
    return index_documents(paths, str(store), backbone, watcher=Seen(), processes=1, **options)


def contents(store: Path) -> dict[str, tuple[Any, ...]]:
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


def test_every_page_is_stored_under_its_name(tmp_path: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=3)
    write_pdf(tmp_path / "in/sub/b.pdf", pages=2)
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone)
    assert (report.pages, report.added, report.skipped) == (5, 5, 0)
    assert names(tmp_path / "store") == ["a.pdf#1", "a.pdf#2", "a.pdf#3", "sub/b.pdf#1", "sub/b.pdf#2"]


def test_a_second_run_encodes_only_what_is_new(tmp_path: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=3)
    index([tmp_path / "in"], tmp_path / "store", small_backbone)
    before = contents(tmp_path / "store")
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


def test_a_changed_file_takes_its_names_along_and_pruning_removes_the_old_pages(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=3)
    index([tmp_path / "in"], tmp_path / "store", small_backbone)
    write_pdf(tmp_path / "in/a.pdf", pages=2, seed=9)
    index([tmp_path / "in"], tmp_path / "store", small_backbone)
    stored = contents(tmp_path / "store")
    assert len(stored) == 5
    assert names(tmp_path / "store") == ["a.pdf#1", "a.pdf#2", "a.pdf#3"]
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone, prune=True)
    assert report.removed == 3
    assert names(tmp_path / "store") == ["a.pdf#1", "a.pdf#2"]


def test_pruning_spares_pages_of_a_file_that_cannot_be_read_this_time(
    tmp_path: Path, small_backbone: Backbone
) -> None:
    broken, gone = (write_pdf(tmp_path / f"in/{name}.pdf", pages=2, seed=s) for s, name in enumerate("ab"))
    index([tmp_path / "in"], tmp_path / "store", small_backbone)
    broken.write_bytes(b"")
    gone.unlink()
    report = index([tmp_path / "in"], tmp_path / "store", small_backbone, prune=True)
    assert report.removed == 2
    assert names(tmp_path / "store") == ["a.pdf#1", "a.pdf#2"]


def test_bad_files_are_told_and_the_rest_goes_on(tmp_path: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "in/good.pdf", pages=1)
    (tmp_path / "in/empty.pdf").touch()
    (tmp_path / "in/fake.pdf").write_text("not a PDF")
    (tmp_path / "in/notes.txt").write_text("passed over")
    seen = Seen()
    report = index_documents(
        [tmp_path / "in", tmp_path / "absent"], str(tmp_path / "store"), small_backbone, watcher=seen
    )
    assert (report.added, report.passed_over, len(report.failures)) == (1, 1, 3)
    assert list(report.failures) == seen.failures
    assert all("\n" not in str(failure) for failure in report.failures)


def test_another_lineage_is_refused_before_anything_is_read(tmp_path: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=1)
    index([tmp_path / "in"], tmp_path / "store", small_backbone)
    with pytest.raises(LineageMismatch, match="keep: 'stride 1/3' there, 'ink 1/4' here"):
        index([tmp_path / "in"], tmp_path / "store", small_backbone, keep=Keep.parse("ink 1/4"))
    with pytest.raises(LineageMismatch, match="exit_layer: 4 there, 3 here"):
        index([tmp_path / "in"], tmp_path / "store", small_backbone, exit_layer=3)


def test_layers_the_model_lacks_are_refused(tmp_path: Path, small_backbone: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"layers \[0, 99\) of a model of 5"):
        index([tmp_path], tmp_path / "store", small_backbone, exit_layer=99)
    assert not (tmp_path / "store").exists()


def test_rendering_in_processes_changes_nothing(tmp_path: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=6)
    index([tmp_path / "in"], tmp_path / "one", small_backbone)
    index_documents([tmp_path / "in"], str(tmp_path / "two"), small_backbone, watcher=Seen(), processes=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def _index_in_child(paths: list[Path], store: Path, model: Path) -> None:
    indexing._COMMIT_PAGES = 4
    backbone = load_backbone(model, device="cpu", max_pixels=30 * 28 * 28)
    index(paths, store, backbone, batch_pages=2)


def test_killed_at_twenty_random_points_and_run_again_the_store_is_the_same(
    tmp_path: Path, model_folder: Path
) -> None:
    for number in range(4):
        write_pdf(tmp_path / f"in/{number}.pdf", pages=11, seed=number)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ridgerank.indexing", "ridgerank.backbones.load", "tests.test_indexing"])

    def start(store: Path) -> Any:  # noqa: ANN401
        process = context.Process(target=_index_in_child, args=([tmp_path / "in"], store, model_folder))
        process.start()
        return process

    whole = start(tmp_path / "whole")
    whole.join()
    began = time.perf_counter()
    timed = start(tmp_path / "timed")
    timed.join()
    assert (whole.exitcode, timed.exitcode) == (0, 0)
    duration = time.perf_counter() - began
    expected = contents(tmp_path / "whole")
    generator = random.Random(0)
    kills, attempt, halfway = 0, 0, 0
    while kills < 20:
        attempt += 1
        store = tmp_path / f"killed-{attempt}"
        while True:
            process = start(store)
            process.join(generator.uniform(0.0, 0.9 * duration))
            if process.exitcode is None and kills < 20:
                process.kill()
                process.join()
                kills += 1
                if store.exists() and any(store.glob("_versions/*")):
                    with PageStore.open(str(store)) as opened:
                        halfway += 0 < len(opened) < len(expected)
                continue
            process.join()
            assert process.exitcode == 0
            break
        assert list(contents(store).items()) == list(expected.items())
    assert halfway >= 3


def test_the_ids_of_all_pages_differ(tmp_path: Path, small_backbone: Backbone) -> None:
    write_pdf(tmp_path / "in/a.pdf", pages=6)
    index([tmp_path / "in"], tmp_path / "store", small_backbone)
    blocks = [row[-1] for row in contents(tmp_path / "store").values()]
    assert len(blocks) == len(set(blocks)) == 6
    assert np.unique([len(block) for block in blocks]).size == 1

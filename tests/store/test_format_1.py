"""A store of the first format opens, ranks as it did, and takes further pages, in every later release.

Until 0.2.0 it is made anew where the format changes: `python -m tests.store.test_format_1`. Never after.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from miniature import weights
from ridgerank.backbones.load import load_backbone
from ridgerank.indexing.index import index_documents
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import LOCK_NAME
from tests.conftest import write_pdf

FIXTURE = Path(__file__).with_name("format_1")
QUERY = "revenue of Norway"
EXIT_LAYER = 1


def read_states(store: str) -> dict[str, list[float]]:
    backbone = load_backbone(str(weights("mini-qwen")), device="cpu")
    with PageStore.open(store) as opened:
        shallow = ShallowPass(backbone, opened)
        states = shallow.run(QUERY, opened.page_ids()).states.numpy()
        return dict(zip(opened.references(opened.page_ids()), states.tolist(), strict=True))


def test_a_store_of_the_first_format_opens_ranks_and_is_extended(tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(FIXTURE / "store", store)
    expected = dict(np.load(FIXTURE / "states.npz"))
    assert list(find_damage(str(store))) == []
    found = read_states(str(store))
    assert set(found) == set(expected) == {"first.pdf#1", "first.pdf#2"}
    for name, state in expected.items():
        # Products may be taken in bfloat16 on one machine and in float32 on another.
        assert np.linalg.norm(found[name] - state) < 0.02 * np.linalg.norm(state)
    second = write_pdf(tmp_path / "second.pdf", pages=1, seed=5)
    report = index_documents([second], store, preset="small", exit_layer=EXIT_LAYER, processes=1)
    assert report.added == 1
    assert set(read_states(str(store))) == {*expected, "second.pdf#1"}


def make() -> None:
    shutil.rmtree(FIXTURE, ignore_errors=True)
    backbone = load_backbone("miniature/weights/mini-qwen", device="cpu")
    document = write_pdf(FIXTURE / "first.pdf", pages=2)
    index_documents(
        [document], FIXTURE / "store", backbone, preset="small", exit_layer=EXIT_LAYER, processes=1
    )
    document.unlink()
    for name in (LOCK_NAME, "_sources.json"):
        (FIXTURE / "store" / name).unlink(missing_ok=True)
    states: dict[str, Any] = read_states(str(FIXTURE / "store"))
    np.savez(FIXTURE / "states.npz", **states)


if __name__ == "__main__":
    make()

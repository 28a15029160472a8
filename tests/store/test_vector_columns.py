from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ridgerank.errors import ArtifactError, StoreError
from ridgerank.store.page_store import PageStore
from ridgerank.store.store_writer import StoreWriter
from ridgerank.store.vector_columns import VectorOrigin
from tests.store.pages import LINEAGE, ORIGIN, page_id, row


def unit(values: NDArray[np.float64]) -> NDArray[np.float16]:
    return np.asarray(values / np.linalg.norm(values, axis=-1, keepdims=True), dtype=np.float16)


@pytest.fixture
def vectors(uri: str) -> dict[str, NDArray[np.float16]]:
    """Vectors of the twelve pages, one more for each page than for the one before; in the store at `uri`."""
    random = np.random.default_rng(0)
    made = {page_id(number): unit(random.standard_normal((number + 1, 4))) for number in range(12)}
    with StoreWriter(uri, LINEAGE) as writer:
        writer.open_vectors(ORIGIN)
        for first in range(0, 12, 5):  # across the files of the store
            writer.set_vectors(dict(list(made.items())[first : first + 5]))
    return made


def test_vectors_come_in_the_order_stored_or_asked_for(
    uri: str, vectors: dict[str, NDArray[np.float16]]
) -> None:
    wanted = [page_id(7), page_id(0), page_id(11)]
    with PageStore.open(uri) as store:
        assert store.vectors is not None
        blocks = list(store.vectors.blocks())
        assert [one for block in blocks for one in block.page_ids] == store.page_ids()
        block = store.vectors.take(wanted)
        with pytest.raises(StoreError, match="nothing; index them first"):
            store.vectors.take(["nothing"])
    found = np.concatenate([block.vectors for block in blocks])
    np.testing.assert_array_equal(found, np.concatenate(list(vectors.values())))
    assert np.concatenate([block.lengths for block in blocks]).tolist() == list(range(1, 13))
    assert (block.page_ids, block.lengths.tolist()) == (wanted, [8, 1, 12])
    np.testing.assert_array_equal(block.vectors, np.concatenate([vectors[one] for one in wanted]))


@pytest.mark.slow
def test_an_index_lives_through_filling_adding_removing_and_reclaiming(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    origin = VectorOrigin(source="r", fingerprint="f", dim=16)
    made = {page_id(number): unit(random.standard_normal((6, 16))) for number in range(90)}
    uri = str(tmp_path / "store")

    def changed(change: Callable[[StoreWriter], None]) -> None:
        with StoreWriter(uri, LINEAGE) as writer:
            change(writer)
        with PageStore.open(uri) as store:
            column = store.vectors
            assert column is not None
            assert column.indexed
            for one in set(store.page_ids()) - set(column.missing()):
                found = column.nearest(made[one][:3].astype(np.float32), 10)
                assert found[0] == one
                assert len(set(found)) == len(found)
                column.take(found)  # none of them was removed

    def start(writer: StoreWriter) -> None:
        writer.append([row(number) for number in range(80)])
        writer.open_vectors(origin)
        writer.set_vectors({page_id(number): made[page_id(number)] for number in range(70)})
        writer.index_vectors()

    def add(writer: StoreWriter) -> None:
        writer.append([row(number) for number in range(80, 90)])
        writer.set_vectors({page_id(number): made[page_id(number)] for number in range(80, 90)})

    changed(start)
    changed(lambda writer: writer.set_vectors({page_id(n): made[page_id(n)] for n in range(70, 80)}))
    changed(add)
    changed(lambda writer: writer.index_vectors())
    changed(lambda writer: writer.remove([page_id(n) for n in range(20)]))
    changed(lambda writer: writer.reclaim())
    changed(lambda writer: writer.index_vectors())


def test_too_few_vectors_for_an_index_are_an_error(uri: str, vectors: dict[str, NDArray[np.float16]]) -> None:
    with StoreWriter(uri, LINEAGE) as writer, pytest.raises(StoreError, match="about 78 vectors"):
        writer.index_vectors()
    with PageStore.open(uri) as store:
        assert store.vectors is not None
        assert not store.vectors.indexed


def test_an_origin_survives_json_and_other_fields_are_refused() -> None:
    assert VectorOrigin.from_json(ORIGIN.to_json()) == ORIGIN
    with pytest.raises(ArtifactError, match="fingerprint"):
        VectorOrigin.from_json('{"source": "colqwen2"}')

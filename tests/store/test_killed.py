"""A writer killed at any point leaves a store that opens, and the next run makes it whole."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ridgerank.store.layout import pack
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from tests.store.pages import page_id

pytestmark = pytest.mark.slow
KILLS = 10
BATCH = 3
PAGES = 60 * BATCH

_WRITER = f"""
import sys
import numpy as np
from ridgerank.store.store_writer import StoreWriter
from tests.kill_points import killed_at
from tests.store.pages import BASIS, CODED_LINEAGE, LINEAGE, ORIGIN, coded_row, page_id, row

coded = sys.argv[2] == "coded"
row = coded_row if coded else row
lineage, basis = (CODED_LINEAGE, BASIS) if coded else (LINEAGE, None)
with killed_at(int(sys.argv[3])) as calls, StoreWriter(sys.argv[1], lineage, basis) as writer:
    for first in range(0, {PAGES}, {BATCH}):
        batch = [row(number, positions=200) for number in range(first, first + {BATCH})]
        if first and first % 90 == 0 and page_id(first - 1) in writer.page_ids():
            writer.remove([page_id(first - 1)])
            writer.reclaim()
        if batch[0].page.page_id not in writer.page_ids():
            writer.append(batch)
    renamed = [first for first in range(0, {PAGES}, 7) if page_id(first) in writer.page_ids()]
    writer.set_references({{page_id(first): [f"renamed.pdf#{{first}}"] for first in renamed}})
    lacking = sorted(writer.open_vectors(ORIGIN))
    for first in range(0, len(lacking), {BATCH}):
        ids = lacking[first : first + {BATCH}]
        writer.set_vectors({{i: np.full((2, 4), int(i[:2], 16), np.float16) for i in ids}})
print(calls[0])
"""


def write(uri: Path, numbers: str, *, killed_at: int = 0) -> int:
    """Write all pages, or until a call of a function; returns how many calls there were, 0 when killed."""
    command = [sys.executable, "-c", _WRITER, str(uri), numbers, str(killed_at)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == (-signal.SIGKILL if killed_at and not done.stdout else 0)
    return int(done.stdout or 0)


def content(uri: Path) -> dict[str, tuple[object, ...]]:
    with PageStore.open(str(uri)) as store:
        blocks = [pack(prefix).tobytes() for prefix in store.read_prefixes(store.page_ids())]
        return {
            page.page_id: (
                page.references,
                page.text,
                page.vectors is None or page.vectors.tolist(),
                block,
            )
            for page, block in zip(store.pages(store.page_ids(), vectors=True), blocks, strict=True)
        }


@pytest.mark.parametrize("numbers", ["int8", "coded"])
def test_killed_at_random_points_and_run_again_it_is_the_same_store(tmp_path: Path, numbers: str) -> None:
    calls = write(tmp_path / "whole", numbers)
    chance = random.Random(0)
    seen: set[tuple[int, int]] = set()
    for _ in range(KILLS):
        write(tmp_path / "killed", numbers, killed_at=chance.randint(1, calls // 4))
        if not any((tmp_path / "killed").glob("_versions/*.manifest")):
            continue
        with PageStore.open(str(tmp_path / "killed")) as store:
            stored = {number for number in range(PAGES) if page_id(number) in store}
            seen.add((len(stored), PAGES if store.vectors is None else len(store.vectors.missing())))
            assert not list(find_damage(store.uri))
            for first in range(0, PAGES, BATCH):  # whole batches, but for the pages taken out again
                held = {number in stored for number in range(first, first + BATCH - 1)}
                assert len(held) == 1
    assert len(seen) > 3, "every kill came too early or too late"
    assert write(tmp_path / "killed", numbers)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")

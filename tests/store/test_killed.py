"""A writer killed at any point leaves a store that opens, and the next run makes it whole."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ridgerank.store.layout import pack
from ridgerank.store.maintenance import find_damage
from ridgerank.store.page_store import PageStore
from tests.store.pages import page_id

pytestmark = pytest.mark.slow
KILLS = 20
BATCH = 3
PAGES = 60 * BATCH

_WRITER = f"""
import sys
import numpy as np
from ridgerank.store.store_writer import StoreWriter
from tests.store.pages import BASIS, CODED_LINEAGE, LINEAGE, ORIGIN, coded_row, page_id, row

coded = sys.argv[2] == "coded"
row = coded_row if coded else row
print("ready", flush=True)
with StoreWriter(sys.argv[1], CODED_LINEAGE if coded else LINEAGE, BASIS if coded else None) as writer:
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
print("done", flush=True)
"""


def start(uri: Path, numbers: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(uri), numbers]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def finish(uri: Path, numbers: str) -> None:
    with start(uri, numbers) as writer:
        assert writer.communicate()[0] == "done\n"
        assert writer.returncode == 0


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
    with start(tmp_path / "whole", numbers) as writer:
        began = time.monotonic()
        assert writer.wait() == 0
        whole_s = time.monotonic() - began
    chance = random.Random(0)
    seen: set[tuple[int, int]] = set()
    for _ in range(KILLS):
        with start(tmp_path / "killed", numbers) as writer:
            time.sleep(chance.uniform(0.0, 2 * whole_s / KILLS))
            writer.send_signal(signal.SIGKILL)
        if not any((tmp_path / "killed").glob("_versions/*.manifest")):
            continue
        with PageStore.open(str(tmp_path / "killed")) as store:
            stored = {number for number in range(PAGES) if page_id(number) in store}
            seen.add((len(stored), PAGES if store.vectors is None else len(store.vectors.missing())))
            assert not list(find_damage(store.uri))
            for first in range(0, PAGES, BATCH):  # whole batches, but for the pages taken out again
                held = {number in stored for number in range(first, first + BATCH - 1)}
                assert len(held) == 1
    assert len(seen) > 3, "every kill came too early or too late to mean anything"
    finish(tmp_path / "killed", numbers)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")

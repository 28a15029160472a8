"""Stores and calibrations of the first release and of format 2 open today and rank to the same digits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ridgerank.backbones.load import load_backbone
from ridgerank.errors import LineageMismatch, ScoreError
from ridgerank.ranking.reranker import Reranker
from ridgerank.records import AnswerProbability
from ridgerank.store.check import find_damage
from ridgerank.store.page_store import PageStore

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture(params=["first_release/vision", "first_release/text", "format_2/vision", "format_2/text"])
def release(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, with the working directory where the stored model names lead from."""
    version, family = request.param.split("/")
    shutil.copytree(FIXTURES / "first_release", tmp_path / "release")
    shutil.copytree(FIXTURES / version, tmp_path / "release", dirs_exist_ok=True)
    if version == "format_2":
        shutil.rmtree(tmp_path / "release" / family / "store")
        shutil.copytree(FIXTURES / version / family / "store", tmp_path / "release" / family / "store")
    monkeypatch.chdir(tmp_path / "release")
    folder = Path(family)
    with PageStore.open(str(folder / "store")) as store:
        if store.lineage.transformers != transformers.__version__:
            pytest.skip(f"written under transformers {store.lineage.transformers}: not comparable here")
    return folder


SCORES = ("retriever_score", "readout_score", "fused_score")
RANK = f"""
import json, sys
from ridgerank.ranking.reranker import Reranker
with Reranker.open(sys.argv[1], device="cpu") as reranker:
    for query in json.loads(sys.argv[2]):
        pages = reranker.search(query, k=8, top_k=8).pages
        print(json.dumps([[page.reference, *(getattr(page, name) for name in {SCORES})] for page in pages]))
"""


def rank_in_a_process(release: Path, queries: list[str], **environment: str) -> list[list[list[Any]]]:
    """References and scores of the pages of each query, ranked under these variables."""
    ranked = subprocess.run(
        [sys.executable, "-c", RANK, str(release / "store"), json.dumps(queries)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in ranked.stdout.splitlines()]


def test_it_opens_by_the_model_it_names_and_ranks_to_the_same_digits(release: Path) -> None:
    expected = json.loads((release / "rankings.json").read_text())
    # Digits depend on the width of the processor's vectors, by 1e-4 of a score. These were written with AVX2,
    # which torch takes on wider ones if told to.
    ranked = rank_in_a_process(release, list(expected), ATEN_CPU_CAPABILITY="avx2")
    digits = 1e-6 if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") else 1e-3
    for pages, (query, as_written) in zip(ranked, expected.items(), strict=True):
        assert [reference for reference, *_ in pages] == [page["reference"] for page in as_written], query
        for row, page in zip(pages, as_written, strict=True):
            assert row[1:] == pytest.approx([page[name] for name in SCORES], rel=digits, abs=digits)


def test_it_ranks_alike_with_whatever_the_processor_has(release: Path) -> None:
    expected = json.loads((release / "rankings.json").read_text())
    with Reranker.open(release / "store", device="cpu") as reranker:
        for query, pages in expected.items():
            ranked = reranker.search(query, k=8, top_k=8).pages
            assert [page.reference for page in ranked] == [page["reference"] for page in pages]
            for name in SCORES:
                scores = [getattr(page, name) for page in ranked]
                assert scores == pytest.approx([page[name] for page in pages], rel=1e-3, abs=1e-3)


def test_its_calibration_gives_no_probability_and_refuses_a_least_one(release: Path) -> None:
    [query, *_] = json.loads((release / "rankings.json").read_text())
    with Reranker.open(release / "store", device="cpu") as reranker:
        ranking = reranker.search(query)
        assert ranking.answered == AnswerProbability(None, calibrated=False)
        assert {page.probability for page in ranking.pages} == {None}
        with pytest.raises(ScoreError, match="calibrate again"):
            reranker.search(query, min_score=0.5)


def test_every_byte_of_it_passes_the_check(release: Path) -> None:
    assert list(find_damage(str(release / "store"))) == []


def test_its_model_read_otherwise_is_refused(release: Path) -> None:
    options = {"page_text": "head 64"} if release.name == "text" else {"max_pixels": 28 * 28 * 40}
    other = load_backbone(release / "model", device="cpu", **options)
    with pytest.raises(LineageMismatch, match="another lineage"):
        Reranker.open(release / "store", backbone=other)

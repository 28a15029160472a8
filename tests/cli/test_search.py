"""`ridgerank search` prints what Python finds, to the last digit."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ridgerank.cli.search import save_pages
from ridgerank.errors import WriteError
from ridgerank.fusion.weight import user_estimate
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.sidecar import calibrations_folder
from ridgerank.trec import read_run
from tests.calibrated_store import random_target_readout
from tests.cli.commands import invoke


def test_search_prints_what_python_finds(folder: Path, reranker: Reranker) -> None:
    query = "margin of Norway"
    expected = reranker.search(query, top_k=3)
    done = invoke("search", "--store", folder / "store", query, "--top", 3, "--json", "--device", "cpu")
    answer = json.loads(done.stdout)
    for page, printed in zip(expected.pages, answer["pages"], strict=True):
        for name in ("page_id", "reference", "fused_score", "retriever_score", "readout_score", "rank"):
            assert printed[name] == getattr(page, name)
        assert printed["reason"] == page.reason
    assert answer["weight"] == expected.weight
    table = invoke(
        "search", "--store", folder / "store", query, "--images", folder / "images", "--device", "cpu"
    )
    assert expected.pages[0].reference in table.stdout
    assert f"{expected.pages[0].retriever_rank} → 1" in table.stdout
    assert len(list((folder / "images").glob("*.png"))) == 5


def test_search_explains_each_page_it_finds(folder: Path, reranker: Reranker) -> None:
    query, out = "margin of Norway", folder / "why"
    done = invoke(
        "search", "--store", folder / "store", query, "--top", 2, "--explain", out, "--device", "cpu"
    )
    assert f"{out}: 2 pages explained" in done.stderr
    assert "page images" not in done.stderr
    for page in reranker.search(query, top_k=2).pages:
        name = f"{page.rank:02}-{page.reference.replace('#', '-')}"
        facts = json.loads((out / f"{name}.json").read_text())
        expected = reranker.explain(query, page.page_id)
        assert facts == json.loads(json.dumps({**asdict(expected), "rank": page.rank, "reason": page.reason}))
        with Image.open(out / f"{name}.png") as drawn:
            assert drawn.height > 320  # the page rendered anew, not its thumbnail
            red, _, blue = np.asarray(drawn).astype(int).transpose(2, 0, 1)
        assert (red - blue).max() > 100  # black on white but for the heat


def test_a_file_of_queries_becomes_a_run_of_all_candidates(folder: Path, reranker: Reranker) -> None:
    texts = ["margin of Norway", "revenue"]
    (folder / "two.txt").write_text("\n".join(texts))
    arguments = ("--store", folder / "store", "--queries", folder / "two.txt", "--device", "cpu")
    done = invoke("search", *arguments, "--output", folder / "found.trec")
    assert "2 queries ranked at weight" in done.stderr
    run = read_run(folder / "found.trec").to_dict()
    for number, text in enumerate(texts, start=1):
        expected = reranker.search(text, top_k=20).pages
        assert run[f"line-{number}"] == {page.reference: page.fused_score for page in expected}
    assert invoke("search", *arguments).stdout == (folder / "found.trec").read_text()


@pytest.fixture(scope="module")
def scored(folder: Path, reranker: Reranker) -> tuple[object, ...]:
    """Options of a calibration that predicts margins."""
    predictor = random_target_readout(reranker.backbone.geometry.width)
    calibration = replace(reranker.calibration, target_readout=predictor, weight=user_estimate(0.5))
    calibration.save(calibrations_folder(str(folder / "store")), "scored")
    return ("search", "--store", folder / "store", "--readout", "scored", "--device", "cpu")


def test_pages_below_min_score_are_left_out_all_if_need_be(scored: tuple[object, ...], folder: Path) -> None:
    whole = json.loads(invoke(*scored, "revenue", "--top", 20, "--json").stdout)["pages"]
    least = whole[len(whole) // 2]["relevance_score"]
    done = invoke(*scored, "revenue", "--json", "--min-score", least, "--top", 20)
    assert json.loads(done.stdout)["pages"] == [page for page in whole if page["relevance_score"] >= least]
    done = invoke(*scored, "revenue", "--min-score", 1, "--json")
    assert json.loads(done.stdout)["pages"] == []
    assert "no page reaches min_score 1" in done.stderr
    (folder / "one.txt").write_text("revenue\n")
    done = invoke(*scored, "--queries", folder / "one.txt", "--min-score", 1)
    assert done.stdout == ""
    assert "no page reaches --min-score for 1 of 1 queries" in done.stderr


def test_one_query_or_a_file_of_them_is_wanted(folder: Path) -> None:
    for arguments in ((), ("words", "--queries", "q.txt"), ("words", "--output", "x.trec")):
        invoke("search", "--store", folder / "store", *arguments, code=2)


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_searched(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="file cannot be written: File exists"):
        invoke("search", "--store", tmp_path, "words", "--explain", tmp_path / "file")


def test_search_and_rank_look_at_some_documents_only(folder: Path, reranker: Reranker, run: object) -> None:
    document = reranker.search("margin of Norway", top_k=1).pages[0].reference.partition("#")[0]
    words = ("--store", folder / "store", "--device", "cpu", "--document", document)
    pages = json.loads(invoke("search", *words, "margin of Norway", "--json").stdout)["pages"]
    assert pages
    assert {page["reference"].partition("#")[0] for page in pages} == {document}
    candidates = ("--queries", folder / "q.jsonl", "--run", folder / "run.trec")
    ranked = {line.split()[2] for line in invoke("rank", *words, *candidates).stdout.splitlines()}
    given = {line.split()[2] for line in (folder / "run.trec").read_text().splitlines()}
    assert ranked == {page for page in given if page.partition("#")[0] == document}


def test_a_page_of_a_long_name_gets_a_file_of_a_short_one(tmp_path: Path, reranker: Reranker) -> None:
    ranking = reranker.search("margin of Norway", top_k=1)
    page = replace(ranking.pages[0], reference=f"{'folder/' * 40}größe.pdf#7")
    picture = {page.page_id: Image.new("L", (2, 2))}
    save_pages(replace(ranking, pages=(page,)), picture, tmp_path)
    [path] = tmp_path.iterdir()
    assert path.name.startswith("01-")
    assert path.name.endswith("größe.pdf-7.png")

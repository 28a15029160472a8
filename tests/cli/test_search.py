"""`ridgerank search` prints what Python finds, to the last digit."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from PIL import Image

from ridgerank.ranking.reranker import Reranker
from ridgerank.runs.trec import read_run
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
        [facts] = [
            json.loads(path.read_text())
            for path in out.glob("*.json")
            if json.loads(path.read_text())["page_id"] == page.page_id
        ]
        expected = reranker.explain(query, page.page_id)
        assert facts == json.loads(json.dumps({**asdict(expected), "rank": page.rank, "reason": page.reason}))
        name = f"{page.rank:02}-{page.reference.replace('#', '-')}"
        with Image.open(out / f"{name}.png") as drawn:
            assert drawn.height > 320  # the page rendered anew, not its thumbnail
            red, _, blue = np.asarray(drawn).astype(int).transpose(2, 0, 1)
        assert (red - blue).max() > 100  # black on white but for the heat
        assert (out / f"{name}.json").exists()


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


def test_one_query_or_a_file_of_them_is_wanted(folder: Path) -> None:
    for arguments in ((), ("words", "--queries", "q.txt"), ("words", "--output", "x.trec")):
        invoke("search", "--store", folder / "store", *arguments, code=2)

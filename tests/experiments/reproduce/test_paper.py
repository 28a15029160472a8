"""The paper's figures, copied rightly: averages are averages of what stands beside them."""

import numpy as np
import pytest

from experiments.reproduce import paper


@pytest.mark.parametrize(("table", "corpora"), [("table1", 4), ("table2", 8)])
def test_averages_are_those_of_the_columns(table: str, corpora: int) -> None:
    rows = [(method, row) for arms in paper.look_up(table).values() for method, row in arms.items()]
    assert len(rows) == 17
    for method, row in rows:
        columns = [value for name, value in row.items() if name != "Avg"]
        assert len(columns) == corpora
        # Four of the paper's own averages are 0.15 to 0.4 away from the columns beside them.
        assert np.mean(columns) == pytest.approx(row["Avg"], abs=0.4), method


def test_the_further_measures_repeat_the_quality_tables() -> None:
    for family, table in zip(paper.FAMILIES, ("table1", "table2"), strict=True):
        for retriever, arms in paper.look_up("table5", family).items():
            for method, row in arms.items():
                assert row["nDCG@5"] == paper.look_up(table, retriever, method, "Avg")


def test_recoveries_follow_from_the_figures_beside_them() -> None:
    for retriever, arms in paper.look_up("table4").items():
        base, full = arms["retriever"]["NDCG@5"], arms["cross encoder"]["NDCG@5"]
        for method, row in arms.items():
            if row["recovery"] is not None:
                share = 100 * (row["NDCG@5"] - base) / (full - base)
                assert share == pytest.approx(row["recovery"], abs=1.1), (retriever, method)


def test_depth_20_is_the_deployed_one() -> None:
    for backbone in ("Qwen2.5-VL-7B", "GLM-4.1V-9B"):
        at_20 = paper.look_up("table8", "20", f"ours {backbone}")
        assert at_20 == pytest.approx(
            paper.look_up("table1", "ColNomic-7B", f"ours {backbone}", "Avg"), abs=0.11
        )


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mini-colqwen", "ColNomic-7B"),
        ("mini-colqwen-small", "ColPali-v1.3"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL-7B"),
        ("zai-org/GLM-4.1V-9B-Thinking", "GLM-4.1V-9B"),
        ("qwen2.5-vl-3b", None),
    ],
)
def test_models_find_their_counterpart(name: str, published: str | None) -> None:
    assert paper.model_name(name) == published


def test_where_the_paper_has_nothing_there_is_nothing_to_show() -> None:
    assert paper.look_up("table1", None) is None
    assert paper.look_up("table1", "ColNomic-7B", "cross encoder alone") is None
    assert paper.row_key("ours mini-glm") == "ours GLM-4.1V-9B"
    assert paper.row_key("ours my-model") is None
    assert paper.corpus_name("alder") is None
    assert paper.corpus_name("esg_reports_human_labeled_v2") == "ESG-H"

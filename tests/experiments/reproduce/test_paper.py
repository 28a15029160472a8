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


def test_recoveries_follow_from_the_figures_beside_them() -> None:
    for retriever, arms in paper.look_up("table4").items():
        base, full = arms["retriever"]["NDCG@5"], arms["cross encoder"]["NDCG@5"]
        for method, row in arms.items():
            if row["recovery"] is not None:
                share = 100 * (row["NDCG@5"] - base) / (full - base)
                assert share == pytest.approx(row["recovery"], abs=1.1), (retriever, method)

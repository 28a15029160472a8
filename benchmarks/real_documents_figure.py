"""What keeping fewer positions of a page's text costs, drawn from the results on real documents.

python -m benchmarks.real_documents_figure [--results FILE] [--figure docs/real-documents.png]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

ROW = "likelihood, mean"
WAY = "closed form"
LABELS = {"stride": "evenly spaced", "informative": "rare words, numbers, headings"}


def main() -> None:
    """Two panels over bytes a page: the fused ranking, and how much of the target a readout finds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/real_documents_smollm2.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/real-documents.png"))
    arguments = parser.parse_args()
    measured = json.loads(arguments.results.read_text())
    mpl.use("Agg")
    figure, (ranking, agreement) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for number, (rule, label) in enumerate(LABELS.items()):
        keeps = [keep for keep in sorted_by_size(measured) if keep.startswith(rule) or keep == "stride 1"]
        sizes = [measured["bytes_a_page"][keep] / 1e6 for keep in keeps]
        rows = [measured["table"][f"{keep}, {ROW}, {WAY}"] for keep in keeps]
        quality = [row["nDCG@5"] for row in rows]
        shifted = [size * (1 + 0.012 * number) for size in sizes]
        ranking.plot(shifted, quality, "o-", color=f"C{number}", label=label)
        correlations = [measured["readouts"][f"{keep}, {ROW}"]["held_out_r"] for keep in keeps]
        agreement.plot(sizes, correlations, "o-", color=f"C{number}", label=label)
    ranking.axhline(measured["table"]["bm25"]["nDCG@5"], color="0.4", linestyle=":", label="BM25")
    teacher = measured["table"]["teacher: likelihood, closed form"]["nDCG@5"]
    ranking.axhline(teacher, color="0.4", linestyle="--", label="teacher fused")
    ranking.set(xlabel="MB a page", ylabel="nDCG@5, fused", title="ranking")
    agreement.set(xlabel="MB a page", ylabel="held-out r", title="agreement with the teacher")
    figure.legend(*ranking.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    for axis in (ranking, agreement):
        axis.set_xlim(left=0)
    figure.savefig(arguments.figure, dpi=120)
    print(arguments.figure)


def sorted_by_size(measured: dict[str, Any]) -> list[str]:
    """The rules by which pages were pruned, the smallest pages first."""
    sizes: dict[str, int] = measured["bytes_a_page"]
    return sorted(sizes, key=lambda keep: sizes[keep])


if __name__ == "__main__":
    main()

"""How near a weight without judgements comes to the judged one, from one reading and from all of them.

python -m benchmarks.label_free_readings [--corpora 6] [--work build/label_free] [--out results/…json]

Corpora of the miniature are indexed and calibrated by the commands a user would type, with judgements only to
compare with: once with every target and state measured, which is the default, once with the paper's alone
(§B.6). The loss of a weight is what it lacks of w*'s gain over the retriever, in the correlation with
relevance that w* maximizes (eq. 4). Run it again to continue.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import ridgerank
from benchmarks.report import publish
from ridgerank.fusion.weight import objective
from ridgerank.miniature.corpora import NAMES

RETRIEVER = "mini-colqwen"
PAPER = ("--target", "margin", "--state", "last")
SINGLE, ALL = METHODS = ("one reading", "all readings")


def calibrate_corpus(corpus: str, backbone: str, work: Path) -> dict[str, Any]:
    """Both label-free weights of a corpus, each beside the judged one of the same readout."""
    folder = work / f"{corpus}-{backbone}"
    if not (folder / "qrels.trec").exists():
        ridgerank("miniature", "draw", "--out", folder, "--corpus", corpus)
    store_options = ["--store", folder / "pages", "--backbone", backbone]
    ridgerank("index", folder / "documents", *store_options, "--retriever", RETRIEVER)
    query_options = ["--queries", folder / "queries.jsonl", "--qrels", folder / "qrels.trec"]
    row: dict[str, Any] = {"corpus": corpus, "backbone": backbone}
    for method, name, more in ((SINGLE, "one", PAPER), (ALL, "all", ())):
        ridgerank("calibrate", *store_options, *query_options, "--name", name, *more)
        calibration = json.loads((folder / "pages" / "calibrations" / f"{name}.json").read_text())
        facts = calibration["diagnostics"]
        weight, judged = facts["label_free"]["weight"], facts["closed_form"]
        row[method] = {
            "reading": f"{calibration['target']}, {calibration['state']}",
            "judged": judged["weight"],
            "weight": weight,
            "loss_percent": 100 * loss(weight, judged),
        }
    return row


def loss(weight: float, judged: Mapping[str, float]) -> float:
    """What a weight lacks of w*'s gain over the retriever."""
    seen = [np.asarray(judged[name]) for name in ("c_b", "c_s", "rho")]
    best, reached = (float(objective(np.asarray(w), *seen)) for w in (judged["weight"], weight))
    return (best - reached) / (best - judged["c_b"])


def main() -> None:
    """Calibrate every corpus, print the weights, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", type=int, default=6, help="how many, from the first")
    parser.add_argument("--backbones", nargs="+", default=["mini-qwen", "mini-glm"])
    parser.add_argument("--work", type=Path, default=Path("build/label_free"), help="a folder to go on from")
    parser.add_argument("--out", type=Path, default=Path("results/label_free_readings.json"))
    options = parser.parse_args()
    rows = []
    print(f"{'corpus':12} {'backbone':10}  label-free / judged weight (loss), of one reading, of all of them")
    for backbone in options.backbones:
        for corpus in NAMES[: options.corpora]:
            row = calibrate_corpus(corpus, backbone, options.work)
            shown = "   ".join(
                f"{each['weight']:.3f} / {each['judged']:.3f} ({each['loss_percent']:4.1f} %)"
                for each in (row[method] for method in METHODS)
            )
            print(f"{corpus:12} {backbone:10}  {shown}", flush=True)
            rows.append(row)
    summary = {}
    for method in METHODS:
        by_corpus = [row[method] for row in rows]
        distance = np.mean([abs(each["weight"] - each["judged"]) for each in by_corpus])
        lost = np.mean([each["loss_percent"] for each in by_corpus])
        summary[method] = {
            "distance_to_judged": round(float(distance), 3),
            "loss_percent": round(float(lost), 2),
        }
    publish({"summary": summary, "rows": rows}, options.out)


if __name__ == "__main__":
    main()

"""`make demo`: draw a corpus, index it, calibrate without labels, search it, compare with the full model.

python -m benchmarks.demo [--out demo] [--corpus alder]

Runs the commands a new user would type. Half of the corpus' questions, unlabelled, calibrate; the other half
are answered and judged.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from experiments.protocols import recovery
from miniature import weights
from ridgerank.backbones.base import full_margins
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.teacher import TargetCache, complete_targets
from ridgerank.evaluation.metrics import evaluate
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.runs import fuse, join
from ridgerank.fusion.weight import closed_form_estimate
from ridgerank.records import Candidate, Query, Ranking
from ridgerank.reranker.reranker import Reranker
from ridgerank.store.sidecar import calibrations_folder, rerender_pages
from ridgerank.trec import Qrels, Run, read_qrels, read_queries

CANDIDATES = 20
TIMED_QUERIES = 5
WEIGHTS = "miniature/weights"
FULL = "full cross encoder, fused"
console = Console()


def main() -> None:
    """Do the main job, then say how good and how fast it was."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--corpus", default="alder")
    arguments = parser.parse_args()
    out: Path = arguments.out
    console.print(
        "[bold]Small models of this repository, on pages drawn for them.[/]\n"
        "They read these pages and no others; your own documents want a real model, see the end."
    )
    run(f"python -m miniature draw --out {out} --corpus {arguments.corpus}")
    unlabelled, judged = split(out / "queries.jsonl", out)
    models = f"--backbone {WEIGHTS}/mini-qwen --retriever {WEIGHTS}/mini-colqwen"
    run(f"ridgerank index {out}/documents --store {out}/pages {models}")
    run(f"ridgerank calibrate --store {out}/pages --queries {unlabelled}")
    run(f"ridgerank search --store {out}/pages {shlex.quote(judged[0].text)} --images {out}/found")
    compare(out, judged)
    console.print(
        f"Pictures: {out}/found/ (the pages found), {out}/pages/calibrations/default.png (the calibration).\n"
        "Your own PDFs, with a GPU and a model hub:\n"
        "  ridgerank index my/pdfs --store my/pages --backbone Qwen/Qwen2.5-VL-7B-Instruct "
        "--retriever colpali-v1.3 --calibrate\n"
        '  ridgerank search --store my/pages "operating margin in 2019"',
        highlight=False,
    )


def run(command: str) -> None:
    """Show a command and run it."""
    console.print(f"[bold green]$[/] {command}", highlight=False, soft_wrap=True)
    words = shlex.split(command.removeprefix("python -m "))
    subprocess.run([sys.executable, "-m", *words], check=True)


def split(path: Path, out: Path) -> tuple[Path, list[Query]]:
    """Every other query calibrates, without its judgements; the rest are for the comparison."""
    queries = read_queries(path)
    unlabelled = out / "unlabelled.jsonl"
    lines = (json.dumps({"query_id": query.query_id, "text": query.text}) for query in queries[1::2])
    unlabelled.write_text("".join(f"{line}\n" for line in lines))
    return unlabelled, queries[::2]


def compare(out: Path, queries: list[Query]) -> None:
    """Rank with and without the full model, and print quality and time of each."""
    judged = read_qrels(out / "qrels.trec")
    qrels = {query.query_id: judged[query.query_id] for query in queries}
    with Reranker.open(
        f"{out}/pages", backbone=load_backbone(weights("mini-qwen"), device="cpu")
    ) as reranker:
        rankings = {
            query: reranker.search(query.text, k=CANDIDATES, top_k=CANDIDATES)
            for query in track(queries, "ranking", console=Console(stderr=True))
        }
        margins, margins_ms = read_fully(reranker, rankings)
    latencies = [ranking.latency for ranking in rankings.values()]
    retrieval_ms = statistics.median(latency.retrieval_ms for latency in latencies)
    times = {
        "retriever alone": retrieval_ms,
        "RidgeRank": statistics.median(
            latency.retrieval_ms + latency.reading_ms + latency.compute_ms + latency.ranking_ms
            for latency in latencies
        ),
        FULL: retrieval_ms + margins_ms,
    }
    retriever = {q.query_id: {p.reference: p.retriever_score for p in r.pages} for q, r in rankings.items()}
    runs = {
        "retriever alone": retriever,
        "RidgeRank": {q.query_id: {p.reference: p.fused_score for p in r.pages} for q, r in rankings.items()},
        FULL: fuse_at_best_weight(retriever, margins, qrels),
    }
    quality = {name: ndcg_at_5(run, qrels) for name, run in runs.items()}
    table = Table(title=f"{len(queries)} questions nobody calibrated on, {CANDIDATES} candidates each")
    for column in ("ranking by", "nDCG@5", "ms, retrieval included", "faster"):
        table.add_column(column, justify="left" if column == "ranking by" else "right")
    for name in runs:
        table.add_row(name, f"{quality[name]:.1f}", f"{times[name]:.0f}", f"{times[FULL] / times[name]:.0f}x")
    console.print(table)
    share = recovery(quality["retriever alone"], quality["RidgeRank"], quality[FULL])
    console.print(
        f"RidgeRank keeps {share:.0f} % of what the full model, fused, gains over the retriever, "
        f"{times[FULL] / times['RidgeRank']:.0f} times faster. Its weight saw no judgement; the full model's "
        "is the best for these very questions."
    )


def fuse_at_best_weight(
    retriever: dict[str, dict[str, float]], margins: dict[str, dict[str, float]], qrels: Qrels
) -> dict[str, dict[str, float]]:
    """The full model's margins fused with the retriever's scores at w* of these judgements (eq. 4)."""
    joined = join(Run.of_dict(retriever), Run.of_dict(margins))
    correlations = correlate(joined.scores[0], joined.scores[1], joined.relevance(qrels), joined.lists)
    return fuse(retriever, margins, weight=closed_form_estimate(correlations).weight)


def read_fully(
    reranker: Reranker, rankings: dict[Query, Ranking]
) -> tuple[dict[str, dict[str, float]], float]:
    """Margins of the full model over every candidate, and the median milliseconds of one query.

    Only a few queries are timed as a cross encoder runs, every page from its image; for the others each page
    is read once for all.
    """
    store, backbone = reranker.store, reranker.backbone
    margins = TargetCache(calibrations_folder(store.uri), store.lineage)
    candidates = {
        query.text: [Candidate(page.page_id, page.retriever_score) for page in ranking.pages]
        for query, ranking in rankings.items()
    }
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("full model")
        complete_targets(
            backbone,
            store,
            margins,
            candidates,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    timed = list(rankings.items())[:TIMED_QUERIES]
    timed_pages = sorted({page.page_id for _, ranking in timed for page in ranking.pages})
    shown = chain.from_iterable(rerender_pages(store, timed_pages, max_pixels=backbone.page_budget))
    contents = {page.page_id: backbone.content(page) for page in shown}
    seconds = []
    for query, ranking in timed:
        start = time.perf_counter()
        full_margins(backbone, query.text, [contents[page.page_id] for page in ranking.pages])
        seconds.append(time.perf_counter() - start)
    scores = {}
    for query, ranking in rankings.items():
        page_margins = [margins.target("margin", query.text, page.page_id) for page in ranking.pages]
        references = (page.reference for page in ranking.pages)
        # A margin that was never computed would be NaN, which a run refuses.
        scores[query.query_id] = dict(
            zip(references, np.array(page_margins, dtype=np.float64).tolist(), strict=True)
        )
    return scores, 1000 * float(np.median(seconds))


def ndcg_at_5(scores: dict[str, dict[str, float]], qrels: Qrels) -> float:
    """The mean over the judged queries, in percent."""
    return evaluate(Run.of_dict(scores), qrels, ("nDCG@5",)).means()["nDCG@5"]


if __name__ == "__main__":
    main()

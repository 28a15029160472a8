"""The miniature's models on its first four corpora: retriever, full cross encoder, RidgeRank, their times.

python -m benchmarks.miniature [--backbone mini-qwen] [--retriever mini-colqwen] [--work DIR] [--out FILE]

Pages go through the pipeline users have: drawn as PDF, indexed, retrieved, scored over their store. Readouts
leave the evaluated corpus out; weights are read on the next one. What was done stays in --work; started
again, it goes on.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.report import interleaved_seconds, publish
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone
from ridgerank.calibration.margins import MarginCache
from ridgerank.calibration.sight import see_pages
from ridgerank.documents.outcomes import Failure
from ridgerank.embedded import BACKBONES, RETRIEVERS
from ridgerank.evaluation.protocol import HeldOut, leave_one_out, recovery
from ridgerank.evaluation.scored import Scored
from ridgerank.evaluation.scoring import score_corpus
from ridgerank.indexing import IndexPlan, index_documents
from ridgerank.miniature.corpora import PLANS, Corpus, make_corpus
from ridgerank.miniature.draw import draw_corpus
from ridgerank.records import Query
from ridgerank.retrievers.encoders.base import MultiVectorEncoder
from ridgerank.retrievers.encoders.load import load_encoder
from ridgerank.retrievers.late_interaction import LateInteraction
from ridgerank.shallow import ShallowPass
from ridgerank.store.keep import Keep
from ridgerank.store.read import PageStore

FAMILY = 1
TIMED_QUERIES = 5
console = Console(stderr=True)


class _Quiet:
    """Someone who looks on and says only what went wrong."""

    def planned(self, plan: IndexPlan) -> None:
        console.print(f"  {plan.pages} pages, {plan.stored} stored already")

    def committed(self, pages: int, nbytes: int) -> None:
        pass

    def failed(self, failure: Failure) -> None:
        raise SystemExit(f"a page we drew cannot be read: {failure}")


def main() -> None:
    """Measure the pairs of models asked for, print a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--retriever", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--keep", default="stride 1/3", help="visual positions to keep")
    parser.add_argument("--work", type=Path, default=Path("build/miniature"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    corpora = [make_corpus(plan) for plan in PLANS if plan.family == FAMILY]
    rows = []
    for name in arguments.backbone or BACKBONES:
        backbone = load_backbone(name, device="cpu")
        for retriever in arguments.retriever or RETRIEVERS:
            encoder = load_encoder(retriever, device="cpu")
            keep = Keep.parse(arguments.keep)
            rows.append(measure(corpora, backbone, encoder, keep, arguments.work))
            show(rows[-1])
    publish({"candidates": 20, "family": FAMILY, "keep": arguments.keep, "pairs": rows}, arguments.out)


def measure(
    corpora: list[Corpus], backbone: Backbone, encoder: MultiVectorEncoder, keep: Keep, work: Path
) -> dict[str, Any]:
    """All figures of one backbone behind one retriever."""
    scored: list[Scored] = []
    seconds: dict[str, dict[str, float]] = {}
    for corpus in corpora:
        console.print(f"{Path(backbone.name).name} behind {encoder.name} on {corpus.name}")
        documents = work / "corpora" / corpus.name
        for _ in draw_corpus(corpus, documents):
            pass
        uri = str(
            work
            / Path(backbone.name).name
            / Path(encoder.name).name
            / str(keep).replace("/", "-")
            / corpus.name
        )
        index_documents(
            [documents / "documents"], uri, backbone, watcher=_Quiet(), keep=keep, embedder=encoder
        )
        with ShallowPass(backbone, PageStore.open(uri)) as shallow:
            retriever = LateInteraction(encoder, shallow.store)
            margins = MarginCache(work / Path(backbone.name).name / "margins", shallow.store.lineage)
            queries = _queries(corpus)
            start = time.perf_counter()
            scored.append(score_corpus(corpus.name, shallow, retriever, queries, corpus.qrels(), margins))
            console.print(f"  {len(queries)} queries in {time.perf_counter() - start:.0f} s")
            seconds[corpus.name] = _time(shallow, retriever, queries)
    held_out, choice = leave_one_out(scored)
    return _figures(backbone, encoder, held_out, dict(choice.chosen), seconds)


def _queries(corpus: Corpus) -> list[Query]:
    return [Query(corpus.query_id(number), question.text) for number, question in enumerate(corpus.questions)]


def _time(shallow: ShallowPass, retriever: LateInteraction, queries: list[Query]) -> dict[str, float]:
    """Median seconds of a query over its 20 candidates: by full passes over images, over stored pages."""
    timed = queries[:: max(1, len(queries) // TIMED_QUERIES)][:TIMED_QUERIES]
    texts = [query.text for query in timed]
    found = [[each.page_id for each in own] for own in retriever.search_many(texts, 20)]
    wanted = sorted({page_id for own in found for page_id in own})
    batches = see_pages(shallow.store, wanted, max_pixels=shallow.backbone.max_pixels)
    contents = {
        page.page_id: shallow.backbone.content(page) for page in itertools.chain.from_iterable(batches)
    }
    taken: dict[str, list[float]] = {"full": [], "stored": []}
    for text, page_ids in zip(texts, found, strict=True):
        own_contents = [contents[page_id] for page_id in page_ids]
        arms: dict[str, Callable[[], object]] = {
            "full": partial(shallow.backbone.full_margins, text, own_contents),
            "stored": partial(shallow.run, text, page_ids),
        }
        arms["stored"]()
        once = interleaved_seconds(arms, repeats=1)
        for name, own in once.items():
            taken[name].append(own)
    return {name: statistics.median(own) for name, own in taken.items()}


def _figures(
    backbone: Backbone,
    encoder: MultiVectorEncoder,
    held_out: list[HeldOut],
    penalties: dict[str, float],
    seconds: dict[str, dict[str, float]],
) -> dict[str, Any]:
    by_corpus = {
        each.scored.corpus: {name: float(values.mean()) for name, values in each.arms().items()}
        for each in held_out
    }
    arms = list(next(iter(by_corpus.values())))
    means = {arm: statistics.mean(own[arm] for own in by_corpus.values()) for arm in arms}
    return {
        "backbone": Path(backbone.name).name,
        "retriever": encoder.name,
        "ndcg_at_5": {arm: round(value, 2) for arm, value in means.items()},
        "recovery_percent": round(
            recovery(means["retriever"], means["ridgerank"], means["cross encoder"]), 1
        ),
        "recovery_label_free_percent": round(
            recovery(means["retriever"], means["ridgerank, label free"], means["cross encoder"]), 1
        ),
        "speedup": round(statistics.median(own["full"] / own["stored"] for own in seconds.values()), 1),
        "penalties": penalties,
        "by_corpus": {
            each.scored.corpus: {
                **{arm: round(value, 2) for arm, value in by_corpus[each.scored.corpus].items()},
                "weight": round(each.weight.weight, 3),
                "label-free weight": round(each.label_free.weight, 3),
                "agreement with the full model": round(each.agreement, 3),
            }
            for each in held_out
        },
    }


def show(row: dict[str, Any]) -> None:
    """Print one pair of models for people."""
    table = Table(title=f"{row['backbone']} behind {row['retriever']}: nDCG@5")
    corpora = list(row["by_corpus"])
    for column in ("arm", *corpora, "mean"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm, mean in row["ndcg_at_5"].items():
        table.add_row(arm, *(f"{row['by_corpus'][name][arm]:.1f}" for name in corpora), f"{mean:.1f}")
    console.print(table)
    console.print(
        f"recovery {row['recovery_percent']} %, label free {row['recovery_label_free_percent']} %; "
        f"{row['speedup']}x faster than full passes"
    )
    console.print(json.dumps(row["by_corpus"], indent=None))


if __name__ == "__main__":
    main()

"""Quality over bytes: the miniatures' pages stored in several ways, by the paper's protocol.

    python -m benchmarks.compression [--backbone mini-qwen] [--work DIR] [--out results/compression.json]
        [--backbone DIR --documents DIR --checkpoints DIR]

Each setting is a rule for positions, bits and an exit layer. On drawn pages all queries of three corpora fit
the readout that ranks the fourth, and weights are read on the next corpus; recovery is the share of the gain
over the retriever, of the full cross encoder fused with it at its own weight, that is kept. A backbone that
is a folder is a language model over the text of real PDFs (`compression_text.py`). `pass_time_ratio` is the
time of a query over 20 pages divided by that of the paper's setting in the same run. Results stay in --work
and --checkpoints: run it again to continue, or with further settings.
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.compression_states import run_settings, time_settings
from benchmarks.compression_text import measure_text
from benchmarks.miniature import FAMILY, NEVER_TIMED
from benchmarks.report import publish
from experiments.datasets.drawn_corpora import load_miniature
from experiments.protocols.held_out import hold_out_each
from experiments.protocols.recovery import recovery
from experiments.protocols.scored_corpus import ScoredCorpus
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import Experiment
from experiments.reproduce.settings import ExperimentSettings
from ridgerank.cli.progress_bars import Bar
from ridgerank.miniature.corpora import PLANS
from ridgerank.shipped_models import BACKBONES, RETRIEVERS
from ridgerank.store.number_format import NumberFormat
from ridgerank.store.page_store import PageStore
from ridgerank.store.pruning import Keep
from ridgerank.store.rerender import rerender_pages
from ridgerank.store.storage_setting import StorageSetting

PAPER = ("stride 1/3", "8")
SETTINGS = (
    PAPER,
    ("stride 1/3", "4"),
    ("stride 1/3", "3"),
    ("stride 1/6", "8"),
    ("value-norm 1/3", "8"),
    ("value-norm 1/6", "8"),
    ("value-distance 1/6", "8"),
    ("value-norm 1/6", "4"),
    ("value-norm 1/6", "4/2"),
    ("value-norm 1/6", "4/2 group 32"),
    ("value-norm 1/6", "3"),
    ("value-norm 1/6", "3/2"),
    ("value-norm 1/6", "3 group 16"),
    ("value-norm 1/6", "2 group 16"),
    ("value-norm 1/8", "3"),
    ("value-norm 1/9", "4"),
    ("value-distance 1/6", "3"),
    ("value-norm 1/5", "3/2"),
    ("value-norm 1/5", "3"),
    ("ink 1/6", "3"),
    ("spread 1/6", "3"),
    ("value-norm 1/4", "3/1"),
    ("value-norm 1/5", "4/1"),
    ("value-norm 1/5", "3/1"),
    ("value-norm 1/6", "3/1"),
)
"""Positions and bits, the paper's first."""
SHALLOWER_SETTINGS = (
    PAPER,
    ("value-norm 1/5", "3/2"),
    ("value-norm 1/6", "3/2"),
    ("value-norm 1/4", "3/1"),
    ("value-norm 1/5", "3/1"),
    ("value-norm 1/8", "3/1"),
)
"""Those that are measured with a shallower stop, too."""
_TIMED_PAGES = 20


def main() -> None:
    """Measure every setting of the backbones named, print a table, then one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", action="append", help="embedded name or folder; both embedded ones")
    parser.add_argument("--documents", type=Path, help="for a folder: documents/, queries.jsonl, qrels.trec")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=Path("build/real_documents"),
        help="where real_documents has run those questions",
    )
    parser.add_argument("--questions", type=int, default=48, help="of the documents: the first so many")
    parser.add_argument(
        "--exit-layer",
        type=int,
        action="append",
        help="also stop here, in a few settings; one layer before the paper's unless given",
    )
    parser.add_argument("--corpora", type=int, default=4, help="how many corpora of the first family")
    parser.add_argument("--repeats", type=int, default=15, help="how often each pass is timed")
    parser.add_argument("--work", type=Path, default=Path("build/compression"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for backbone in options.backbone or BACKBONES:
        rows += (
            measure_text(options, backbone) if Path(backbone).is_dir() else _measure_drawn(options, backbone)
        )
    show(rows)
    publish({"candidates": 20, "paper": ", ".join(PAPER), "rows": rows}, options.out)


def _measure_drawn(options: argparse.Namespace, backbone: str) -> list[dict[str, Any]]:
    with Bar() as bar:
        experiment = drawn_experiment(options.work, backbone, bar, corpora=options.corpora)
        return measure(experiment, backbone, options.exit_layer, repeats=options.repeats)


def drawn_experiment(work: Path, backbone: str, bar: Bar, *, corpora: int = 4) -> Experiment:
    """The first corpora of the miniature, behind its first retriever, with one backbone."""
    names = [plan.name for plan in PLANS if plan.family == FAMILY][:corpora]
    settings = ExperimentSettings(
        families=tuple(load_miniature(work / "corpora", corpora=frozenset(names))),
        backbones=(backbone,),
        retrievers=RETRIEVERS[:1],
        baselines="miniature",
        device="cpu",
        depths=(),
        full_pass_every=NEVER_TIMED,
    )
    return Experiment(settings, work / "stages", bar)


def measure(
    experiment: Experiment, backbone: str, exit_layers: Sequence[int] | None, *, repeats: int
) -> list[dict[str, Any]]:
    """One row for each setting of one backbone."""
    [retriever] = experiment.settings.retrievers
    analysis, keys = Analysis(experiment), experiment.corpus_keys(0)
    scored = [analysis.scored(corpus_key, retriever, backbone) for corpus_key in keys]
    default = experiment.models.exit_layer(experiment.models.load_backbone(backbone))
    depths: list[tuple[int, Sequence[tuple[str, str]]]] = [(default, SETTINGS)]
    depths += [(exit_layer, SHALLOWER_SETTINGS) for exit_layer in exit_layers or [default - 1]]
    settings = [
        StorageSetting(Keep.parse(keep), NumberFormat.parse(bits), exit_layer)
        for exit_layer, of_depth in depths
        for keep, bits in of_depth
    ]
    corpora: dict[StorageSetting, list[ScoredCorpus]] = {setting: [] for setting in settings}
    nbytes: dict[StorageSetting, list[float]] = {setting: [] for setting in settings}
    for corpus_key, corpus_scores in zip(keys, scored, strict=True):
        folder, corpus = experiment.paths(corpus_key).backbone(backbone), experiment.corpus(corpus_key)
        page_ids = experiment.pools(corpus_key, retriever).page_ids[:, : experiment.settings.candidates]
        experiment.progress.start(f"{corpus.name}: {len(settings)} settings", 0)
        results = run_settings(
            folder / "compression",
            experiment.paths(corpus_key).store(backbone),
            [query.text for query in corpus.queries],
            page_ids,
            partial(experiment.models.backbone_for, folder, backbone),
            settings,
            done=experiment.progress.advance,
        )
        for setting, (states, page_bytes) in results.items():
            flat = states.reshape(-1, states.shape[-1]).astype(float)
            corpora[setting].append(replace(corpus_scores, states=flat))
            nbytes[setting].append(page_bytes)
    times = _time(experiment, backbone, settings, repeats=repeats)
    return [
        {
            "backbone": Path(backbone).name,
            "corpus_family": f"miniature {FAMILY}",
            "keep": str(setting.keep),
            "bits": str(setting.numbers),
            "exit_layer": setting.exit_layer,
            "bytes_per_page": round(statistics.mean(nbytes[setting])),
            **rank_quality(corpora[setting]),
            "pass_time_ratio": round(times[setting] / times[settings[0]], 3),
        }
        for setting in settings
    ]


def rank_quality(corpora: list[ScoredCorpus]) -> dict[str, float]:
    """Agreement with the full model, nDCG@5 fused, and the share of the fused cross encoder's gain."""
    held_out, _ = hold_out_each(corpora)
    ndcg = [{name: values.mean() for name, values in each.ndcg_by_method().items()} for each in held_out]
    means = {name: statistics.mean(float(each[name]) for each in ndcg) for name in ndcg[0]}
    kept = recovery(means["retriever"], means["ridgerank"], means["cross encoder, fused"])
    return {
        "agreement": round(statistics.mean(each.agreement for each in held_out), 3),
        "ndcg_at_5": round(means["ridgerank"], 2),
        "recovery_percent": round(kept, 1),
    }


def _time(
    experiment: Experiment, backbone: str, settings: Sequence[StorageSetting], *, repeats: int
) -> dict[StorageSetting, float]:
    corpus_key = experiment.corpus_keys(0)[0]
    model = experiment.models.load_backbone(backbone)
    with PageStore.open(experiment.paths(corpus_key).store(backbone)) as store:
        page_ids = store.page_ids()[:_TIMED_PAGES]
        batches = rerender_pages(store, page_ids, max_pixels=model.page_budget)
        pages = list(islice((page for batch in batches for page in batch), _TIMED_PAGES))
    query = experiment.corpus(corpus_key).queries[0].text
    return time_settings(model, pages, query, settings, repeats=repeats)


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    print(f"{'backbone':10} {'keep':20} {'bits':12} exit   kB/page      r  nDCG@5  recovery  time")
    for row in rows:
        print(
            f"{row['backbone']:10} {row['keep']:20} {row['bits']:12} {row['exit_layer']:4} "
            f"{row['bytes_per_page'] / 1e3:9.1f} {row['agreement']:6.3f} {row['ndcg_at_5']:7.2f} "
            f"{row['recovery_percent'] or float('nan'):8.1f} %  {row['pass_time_ratio']:.2f}"
        )


if __name__ == "__main__":
    main()

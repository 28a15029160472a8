"""`make validate-gpu`: what a machine with a GPU shows, in some three hours without downloads.

Half of the queries, without their judgements, fit a readout and give the weight of §B.6; the other half are
reported. The work folder keeps what is computed: run the command again after an interruption.
"""

import json
import os
import platform
import resource
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import torch
import typer

from experiments.datasets.load import load_benchmark
from experiments.protocols import ScoredCorpus
from experiments.reproduce.analysis import Analysis
from experiments.reproduce.experiment import CorpusKey, Experiment
from experiments.reproduce.settings import ExperimentSettings
from experiments.reproduce.stages.checkpoint import StageProgress
from experiments.reproduce.stages.retrieval import InMemoryLateInteraction, list_corpus_pages
from experiments.reproduce.stages.states import CandidateStates, run_states
from experiments.reproduce.tables.table import Column, Row, Table
from ridgerank.atomic import replace_text_file
from ridgerank.backbones.base import Backbone, Content, full_margins
from ridgerank.backbones.load import placement
from ridgerank.calibration.calibrate import Workbench, save, scorers
from ridgerank.calibration.fit import CalibrationLists, QueryLists, ReadoutFit, fit
from ridgerank.calibration.readout_file import ReadoutFile
from ridgerank.calibration.weight import weigh
from ridgerank.cli._console import Bar
from ridgerank.cli.main import run_app
from ridgerank.documents.render import render_pages
from ridgerank.errors import BackboneError, DatasetError
from ridgerank.evaluation.metrics import compare_evaluations, evaluate
from ridgerank.fusion.correlations import correlate
from ridgerank.fusion.standardize import fuse_scores
from ridgerank.fusion.weight import label_free_estimate
from ridgerank.indexing.index import index_documents
from ridgerank.ragged import Floats
from ridgerank.records import Page, Query
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore
from ridgerank.trec import Run

Facts: TypeAlias = dict[str, float | str]
_CHECKED_PAGES = 4
_LARGEST_DIFFERENCE = {torch.float32: 0.01, torch.bfloat16: 1.0, torch.float16: 0.3}
"""Of a margin from that of transformers' own forward: half-precision logits move in coarse steps."""


def check_machine(experiment: Experiment, key: CorpusKey, say: StageProgress) -> Facts:
    """Step 0: device, memory, disk; a retriever that loads whole; margins of a few pages."""
    settings, corpus = experiment.settings, experiment.corpus(key)
    cuda = placement(settings.device, None)[0].type == "cuda"
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts: Facts = {
        "device": torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU, no CUDA",
        "memory GB": (torch.cuda.mem_get_info()[1] if cuda else ram) / 1e9,
        "free disk GB": shutil.disk_usage(experiment.work).free / 1e9,
        **{package: version(package) for package in ("ridgerank", "torch", "transformers", "numpy")},
    }
    say.echo("step 0, under five minutes: " + ", ".join(f"{name} {fact}" for name, fact in facts.items()))
    refs = list_corpus_pages(corpus)
    first = list(render_pages(refs[:_CHECKED_PAGES], max_pixels=experiment.models.max_pixels))
    pages = [page for page in first if isinstance(page, Page)]
    encoder = experiment.models.load_encoder(settings.retrievers[0])
    start = time.perf_counter()
    encoder.embed_pages([page.image for page in pages])
    facts["s to embed a page"] = embedding = (time.perf_counter() - start) / len(pages)
    backbone, query = experiment.models.load_backbone(settings.backbones[0]), corpus.queries[0].text
    contents = [backbone.content(page) for page in pages]
    ours = full_margins(backbone, query, contents)
    start = backbone.clock()
    full_margins(backbone, query, contents)
    facts["s to read a page at full depth"] = reading = (backbone.clock() - start) / len(contents)
    difference = float(np.abs(ours.cpu().numpy() - own_margins(backbone, query, contents)).max())
    facts["largest difference of a margin from transformers' own"] = difference
    if difference > _LARGEST_DIFFERENCE[backbone.dtype]:
        raise BackboneError(f"margins differ by {difference:.3g} from those of transformers' own forward")
    facts["GB of weights"] = backbone.nbytes / 1e9
    timed = len(corpus.queries) // (settings.full_pass_every or 1)
    for step, seconds in {
        "1, retrieve": len(refs) * embedding,
        "2, two stores": 2 * len(refs) * reading,
        "3, full-depth margins": len(refs) * reading,
        "4, full passes to time": timed * settings.candidates * reading,
    }.items():
        say.echo(f"step {step}: about {max(1, round(seconds / 60))} min of the model, and reading files")
    return facts


def own_margins(backbone: Backbone, query: str, contents: Sequence[Content]) -> Floats:
    """Margins by transformers' own forward over whole prompts, page by page."""
    suffix, (yes, no) = (
        torch.tensor(backbone.tokens.suffix(query), device=backbone.device),
        backbone.tokens.answers,
    )
    margins = []
    with torch.inference_mode():
        for content, page in zip(contents, backbone._tokenize_pages(contents), strict=True):
            ids = torch.cat([page.ids, suffix])[None]
            inputs = {}
            if not backbone.reads_text:
                image = backbone._process([content])  # type: ignore[attr-defined]
                inputs = {name: values.to(backbone.device) for name, values in image.items()}
                inputs["mm_token_type_ids"] = (ids == backbone._model.config.image_token_id).int()
            logits = backbone._model(input_ids=ids, **inputs, use_cache=False, logits_to_keep=1).logits[0, -1]
            margins.append(float(logits[yes].float() - logits[no].float()))
    return np.array(margins)


def measure_passes(experiment: Experiment, key: CorpusKey, store: str) -> Facts:
    """Milliseconds of a pass over the shortest, the middle and the longest pages, and of reading them."""
    query, count = experiment.corpus(key).queries[0].text, experiment.settings.candidates
    facts: Facts = {}
    with PageStore.open(store) as opened:
        shallow = ShallowPass(experiment.models.load_backbone(experiment.settings.backbones[0]), opened)
        ids = opened.page_ids()
        lengths = [int(shallow._read([page], {}).lengths[0]) for page in ids]
        ids = [ids[number] for number in np.argsort(lengths, kind="stable").tolist()]
        last = max(0, len(ids) - count)
        for name, start in (("shortest", 0), ("middle", last // 2), ("longest", last)):
            runs = [shallow.run(query, ids[start : start + count]) for _ in range(6)][1:]
            facts[f"ms of a pass over the {name} pages"] = float(np.median([run.compute_ms for run in runs]))
            facts["ms to read candidates in memory"] = float(np.median([run.reading_ms for run in runs]))
        facts["kB per page, `small`"] = opened.info().bytes_per_page / 1000
    return facts


DEFAULTS = {
    "vidore2": ("Econ", "qwen2.5-vl-7b", "colpali-v1.3"),
    "miniature": ("alder", "mini-qwen", "mini-colqwen"),
}
"""Benchmark → corpus, backbone, retriever."""
PUBLISHED = {("Econ", "colpali-v1.3"): 50.1, ("Econ", "colnomic-7b"): 56.5}
"""nDCG@5 of a retriever, the mean of four languages, in the results repository of MTEB."""
_ALLOWED_LOSS, _DEFAULT_WEIGHT = 5.0, 0.5


def small_states(experiment: Experiment, key: CorpusKey) -> tuple[str, CandidateStates]:
    """The store of the default setting, and the states of all candidates over it."""
    settings, corpus = experiment.settings, experiment.corpus(key)
    folder = experiment.paths(key).backbone(settings.backbones[0]) / "small"
    store = str(folder / "store")
    backbone = experiment.models.load_backbone(settings.backbones[0])
    index_documents(corpus.documents, store, backbone, preset="small", processes=0)
    pools = experiment.pools(key, settings.retrievers[0])
    experiment.progress.start(f"{corpus.name}: states over the store `small`", len(corpus.queries))
    with PageStore.open(store) as opened:
        shallow = ShallowPass(backbone, opened, cache_bytes=0)
        return store, run_states(
            folder,
            corpus,
            pools,
            lambda: shallow,
            candidates=settings.candidates,
            full_pass_every=None,
            done=experiment.progress.advance,
        )


class _Asked(InMemoryLateInteraction):
    """The retriever by its name; its candidates are known."""

    def __init__(self, name: str) -> None:
        self.name = name


def fit_readout(experiment: Experiment, half: ScoredCorpus, store: str, file: Path) -> tuple[Floats, float]:
    """A readout fitted to queries without their judgements, saved to `file`, and the weight of §B.6."""
    backbone = experiment.models.load_backbone(experiment.settings.backbones[0])
    queries = tuple(Query(name, name) for name in half.queries)
    data = QueryLists(
        queries, half.pages, half.lists, half.retriever, {"last": half.states}, {"margin": half.margins}, None
    )
    lists = CalibrationLists(data, None, None, None, {})
    fits = fit(data)
    fitted = fits["margin", "last"]
    if not isinstance(fitted, ReadoutFit):
        raise fitted
    with PageStore.open(store) as opened:
        asked = _Asked(experiment.settings.retrievers[0])
        bench = Workbench(ShallowPass(backbone, opened), asked, experiment.work)
        made = save(bench, lists, fits, weigh(lists, scorers(fits, lists), keep_paper=True))
    ReadoutFile.of(made, backbone, fitted_on=(half.corpus,)).save(file)
    kept = fitted.data
    third = correlate(kept.retriever, fitted.held_out_scores, kept.targets["margin"], kept.lists)
    return fitted.vector, label_free_estimate(third).weight


def validate(settings: ExperimentSettings, work: Path, out: Path, progress: StageProgress) -> None:
    """All steps; writes `report.json`, `report.md` and a readout for each preset."""
    work.mkdir(parents=True, exist_ok=True)
    experiment = Experiment(settings, work, progress)
    [key] = experiment.corpus_keys()
    corpus, backbone, retriever = experiment.corpus(key), settings.backbones[0], settings.retrievers[0]
    facts = check_machine(experiment, key, progress)
    pools = experiment.pools(key, retriever)
    names = experiment.references(key)
    found = {
        query.query_id: {names[page.page_id]: page.score for page in pools.of(number, settings.candidates)}
        for number, query in enumerate(corpus.queries)
    }
    quality = evaluate(Run.of_dict(found), corpus.qrels).means()["nDCG@5"]
    published = PUBLISHED.get((corpus.name, retriever))
    facts |= {"nDCG@5 of the retriever, all queries": quality, "published": published or "unknown"}
    progress.echo(f"retriever: nDCG@5 {quality:.1f}, published {published or 'unknown'}")
    if published is not None and quality < published - _ALLOWED_LOSS:
        raise DatasetError(f"the retriever ranks at {quality:.1f} nDCG@5, published are {published:.1f}")
    paper = Analysis(experiment).scored(key, retriever, backbone)
    timed = experiment.states(key, backbone, retriever)
    store, over_small = small_states(experiment, key)
    small = replace(paper, states=over_small.states.reshape(len(paper.pages), -1).astype(np.float64))
    facts |= measure_passes(experiment, key, store)
    presets = (
        ("paper", paper, timed, experiment.paths(key).store(backbone)),
        ("small", small, over_small, store),
    )
    for name, _, each, _ in presets:
        facts[f"ms to read candidates from disk, `{name}`"] = float(each.reading_ms.mean())
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
    facts["GB in use at most"] = peak / 1e9

    order = np.random.default_rng(settings.seed).permutation(len(corpus.queries)).tolist()
    fitted, shown = sorted(order[::2]), sorted(order[1::2])
    test = paper.take(shown)
    full_ms = float(pools.retrieval_ms.mean() + np.nanmean(timed.full_ms))
    methods = [("retriever", 0.0, test.retriever, float(pools.retrieval_ms.mean()))]
    methods += [("full cross encoder", weight, test.margins, full_ms) for weight in (_DEFAULT_WEIGHT, 1.0)]
    for name, scored, each, uri in presets:
        file = out / f"readout-{name}.ridge"
        vector, weight = fit_readout(experiment, scored.take(fitted), uri, file)
        scores = scored.take(shown).states @ vector
        latency = float((pools.retrieval_ms + each.reading_ms + each.compute_ms).mean())
        methods += [(f"RidgeRank, `{name}`", w, scores, latency) for w in (_DEFAULT_WEIGHT, weight)]
    base, rows = test.evaluate(test.retriever, ("nDCG@5",)), []
    reference = test.fused_ndcg(test.margins, _DEFAULT_WEIGHT).mean() - base.means()["nDCG@5"]
    for name, weight, scores, latency in methods:
        ranked = test.evaluate(fuse_scores(test.retriever, scores, weight, test.lists), ("nDCG@5",))
        [gain] = compare_evaluations(base, ranked)
        recovery = 100 * gain.difference / reference
        figures = (ranked.means()["nDCG@5"], gain.difference, *gain.interval, recovery, latency)
        rows.append(Row((name, weight, *figures, full_ms / latency)))
    what = (
        f"{corpus.name}, {len(shown)} queries that no readout saw, {settings.candidates} candidates each; "
        f"{backbone} behind {retriever}"
    )
    write_tables(rows, facts, what, out)


def write_tables(rows: Sequence[Row], facts: Facts, what: str, out: Path) -> None:
    """Both tables in one JSON and one Markdown file."""
    heads = ("method", "w", "nDCG@5", "gain", "95 % from", "to", "recovery %", "ms", "speedup")
    formats = ("s", ".2f", ".1f", "+.1f", "+.1f", "+.1f", ".1f", ".1f", ".1f")
    caption = "Gain over the retriever; recovery of the gain of the full cross encoder at w = 0.5."
    columns = tuple(Column(head, form) for head, form in zip(heads, formats, strict=True))
    cells = [(name, fact if isinstance(fact, str) else f"{fact:.3g}") for name, fact in facts.items()]
    headless = (Column("what", "s"), Column("", "s"))
    machine = Table("machine", "Machine", "As the command found it.", headless, tuple(map(Row, cells)))
    tables = [Table("quality", "Quality and latency", f"{what}. {caption}", columns, tuple(rows)), machine]
    for suffix, text in (
        ("json", json.dumps([json.loads(table.to_json()) for table in tables], indent=1) + "\n"),
        ("md", "\n".join(table.to_markdown() for table in tables)),
    ):
        with replace_text_file(out / f"report.{suffix}") as file:
            file.write(text)


app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    out: Annotated[Path, typer.Option(help="Folder for the report and the readouts.")],
    work: Annotated[Path, typer.Option(help="Folder for what is computed.")] = Path("build/validate_gpu"),
    benchmark: Annotated[str, typer.Option(help="vidore2, miniature, or folder:PATH.")] = "vidore2",
    corpus: Annotated[str | None, typer.Option(help="One corpus of it.")] = None,
    backbone: Annotated[str | None, typer.Option(help="A model that looks at pages.")] = None,
    retriever: Annotated[str | None, typer.Option(help="A late interaction model.")] = None,
    local: Annotated[Path | None, typer.Option(help="Copies of the data sets. [default: the hub]")] = None,
    candidates: Annotated[int, typer.Option(min=5, help="Candidates per query.")] = 20,
    device: Annotated[str | None, typer.Option(help="[default: cuda, else the CPU]")] = None,
) -> None:
    """Check this machine, then measure quality, latency and memory on one corpus."""
    names = DEFAULTS.get(benchmark, (None, *DEFAULTS["vidore2"][1:]))
    corpus = corpus or names[0]
    chosen = None if corpus is None else (corpus,)
    [family, *_] = load_benchmark(benchmark, work / "corpora", corpora=chosen, local=local)
    settings = ExperimentSettings(
        families=(replace(family, corpora=family.corpora[:1]),),
        backbones=(backbone or names[1],),
        retrievers=(retriever or names[2],),
        candidates=candidates,
        depths=(candidates,),
        device=device,
    )
    with Bar() as bar:
        validate(settings, work / "stages", out, bar)
    typer.echo(f"{out}/report.md: post it with report.json; the readouts can be published")


if __name__ == "__main__":
    run_app(app)

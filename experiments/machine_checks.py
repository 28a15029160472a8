"""Step 0 of `make validate-gpu`, and its table of the machine."""

import os
import platform
import shutil
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from experiments.reproduce.experiment import CorpusKey, Experiment
from experiments.reproduce.stages.checkpoint import StageProgress
from experiments.reproduce.stages.retrieval import list_corpus_pages
from miniature import model_path
from ridgerank.backbones.base import Backbone, Content, full_margins
from ridgerank.backbones.load import placement
from ridgerank.backbones.model_settings import SHORT_NAMES
from ridgerank.documents.render import render_pages
from ridgerank.errors import BackboneError
from ridgerank.ragged import Floats
from ridgerank.records import Page
from ridgerank.scoring.shallow import ShallowPass
from ridgerank.store.page_store import PageStore

Facts: TypeAlias = dict[str, float | str]
_CHECKED_PAGES = 4
_LARGEST_DIFFERENCE = {torch.float32: 0.01, torch.bfloat16: 1.0, torch.float16: 0.3}
"""Of a margin from that of transformers' own forward: half-precision logits move in coarse steps."""


def check_machine(experiment: Experiment, key: CorpusKey, say: StageProgress) -> Facts:
    """Step 0: device, memory, disk, downloads; a retriever that loads whole; margins of a few pages."""
    settings, corpus = experiment.settings, experiment.corpus(key)
    cuda = placement(settings.device, None)[0].type == "cuda"
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    models = (*settings.backbones, *settings.retrievers)
    facts: Facts = {
        "device": torch.cuda.get_device_name() if cuda else f"{platform.machine()} CPU, no CUDA",
        "memory GB": (torch.cuda.mem_get_info()[1] if cuda else ram) / 1e9,
        "free disk GB": shutil.disk_usage(experiment.work).free / 1e9,
        **{f"download of {name}": describe_download(model_path(name)) for name in models},
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


def describe_download(name: str) -> str:
    """The size of a repository of the hub; a folder needs no download."""
    from huggingface_hub import HfApi

    if Path(name).exists():
        return "none"
    try:
        files = HfApi().model_info(SHORT_NAMES.get(name, name), files_metadata=True).siblings or []
    except Exception as error:  # the hub's client raises whatever the network does
        return f"unknown ({type(error).__name__})"
    return f"at most {sum(file.size or 0 for file in files) / 1e9:.1f} GB"


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

"""The paper's own figures, measured on an A100, and what of ours each is to be compared with.

The numbers lie in `paper.json`, by table; here is only how they are found. Where a model or corpus of a run
has no counterpart in the paper, there is nothing to show beside it.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = "paper, A100"
"""How a row with the paper's figures is marked, everywhere."""

_COUNTERPARTS = {
    "mini-qwen": "Qwen2.5-VL-7B",
    "mini-glm": "GLM-4.1V-9B",
    "mini-colqwen-small": "ColPali-v1.3",
    "mini-colqwen": "ColNomic-7B",
    "qwen2.5-vl-7b": "Qwen2.5-VL-7B",
    "glm-4.1v-9b": "GLM-4.1V-9B",
    "colnomic-7b": "ColNomic-7B",
    "colnomic-embed-multimodal-7b": "ColNomic-7B",
    "colpali-v1.3": "ColPali-v1.3",
}
"""A model, or what stands in for it → the paper's name; longer names first."""

_CORPORA = {
    "biomedical_lectures_v2": "Biomed",
    "economics_reports_v2": "Econ",
    "esg_reports_human_labeled_v2": "ESG-H",
    "esg_reports_v2": "ESG-F",
    "computer_science": "cs",
    "energy": "energy",
    "finance_en": "fin en",
    "finance_fr": "fin fr",
    "hr": "hr",
    "industrial": "indus",
    "pharmaceuticals": "pharma",
    "physics": "physics",
}
FAMILIES = ("ViDoRe 2", "ViDoRe 3")
_LABELS = {
    "retriever": "No reranking",
    "cross encoder": "Full cross encoder",
    "text reranker": "Qwen3-Reranker-0.6B",
    "image reranker": "MonoQwen2-VL",
}


@cache
def read_figures() -> Mapping[str, Any]:
    """Everything in `paper.json`: table → rows by role → columns."""
    path = Path(__file__).parent / "paper.json"
    figures: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return figures


def model_name(name: str) -> str | None:
    """The paper's name of a model or of what it stands in for, None where it has none."""
    lowered = name.casefold()
    return next((published for ours, published in _COUNTERPARTS.items() if ours in lowered), None)


def corpus_name(name: str) -> str | None:
    """The paper's name of a corpus, None for one that is not of ViDoRe."""
    if name in _CORPORA.values():
        return name
    lowered = name.casefold()
    return next((published for ours, published in _CORPORA.items() if ours in lowered), None)


def row_key(key: str) -> str | None:
    """A method's key in the paper's tables: `ours mini-qwen` is `ours Qwen2.5-VL-7B`."""
    if not key.startswith("ours "):
        return key
    published = model_name(key.removeprefix("ours "))
    return None if published is None else f"ours {published}"


def row_label(key: str) -> str:
    """A method as the paper calls it."""
    published = row_key(key) or key
    if published.startswith("ours "):
        return f"RidgeRank ({published.removeprefix('ours ')})"
    return _LABELS.get(published, published)


def look_up(*path: str | None) -> Any:  # noqa: ANN401 (any JSON value)
    """What lies at a path of keys in `paper.json`, None where there is nothing."""
    value: Any = read_figures()
    for part in path:
        if part is None or not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value

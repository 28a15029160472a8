"""RidgeRank: visual document reranking by stored page prefixes, one ridge readout and closed-form fusion.

    from ridgerank import Reranker

    with Reranker.open("pages") as reranker:
        for page in reranker.search("operating margin in 2019").pages:
            print(page.rank, page.reference, page.reason)

The names below are the front door; `docs/api.md` shows each at work. They are loaded when first used:
`import ridgerank` is light and imports no torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ridgerank.extras import name_missing_extras
from ridgerank.version import __version__

if TYPE_CHECKING:
    from ridgerank.backbones.load import load_backbone
    from ridgerank.calibration.calibrate import calibrate
    from ridgerank.errors import RidgeRankError
    from ridgerank.fusion.runs import fuse
    from ridgerank.indexing.index import index_documents
    from ridgerank.records import RankedPage, Ranking
    from ridgerank.reranker.reranker import Reranker
    from ridgerank.store.page_filter import PageFilter
    from ridgerank.store.page_store import PageStore

__all__ = [
    "PageFilter",
    "PageStore",
    "RankedPage",
    "Ranking",
    "Reranker",
    "RidgeRankError",
    "__version__",
    "calibrate",
    "fuse",
    "index_documents",
    "load_backbone",
]

_HOMES = {
    "PageFilter": "ridgerank.store.page_filter",
    "PageStore": "ridgerank.store.page_store",
    "RankedPage": "ridgerank.records",
    "Ranking": "ridgerank.records",
    "Reranker": "ridgerank.reranker.reranker",
    "RidgeRankError": "ridgerank.errors",
    "calibrate": "ridgerank.calibration.calibrate",
    "fuse": "ridgerank.fusion.runs",
    "index_documents": "ridgerank.indexing.index",
    "load_backbone": "ridgerank.backbones.load",
}

if sys.platform == "win32":
    raise ImportError("RidgeRank runs on Linux and macOS, not on Windows; run it in WSL there")

name_missing_extras()


def __getattr__(name: str) -> Any:  # noqa: ANN401 (whatever the front door holds)
    """Import a name of the front door when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""From a name to a `Retriever` over a store. Models are imported only if one is named."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ridgerank.errors import RetrieverError
from ridgerank.extras import load_plugins
from ridgerank.retrievers.base import JOINED_BY, HybridRetriever, Retriever
from ridgerank.store.page_store import PageStore

if TYPE_CHECKING:
    import torch

    from ridgerank.retrievers.encoders import MultiVectorEncoder

RETRIEVERS: dict[str, Callable[[PageStore], Retriever]] = {}
"""Retrievers of other packages, by name: what makes each over a store (`extras.load_plugins`)."""
_DENSE = "dense:"
_STORED = "stored"
"""The retriever whose vectors the store holds, as a member of several: `stored+bm25`."""
_ENCODERS: "WeakValueDictionary[tuple[str, str, str], MultiVectorEncoder]" = WeakValueDictionary()
"""Encoders in use: stores that are served together share them."""


def load_retriever(
    name: str | None,
    store: PageStore,
    *,
    device: "str | torch.device | None" = None,
    dtype: "torch.dtype | None" = None,
) -> Retriever:
    """Load the retriever called `name` to search in `store`.

    `bm25` searches the text of the pages, `dense:NAME` does so with a sentence-transformers model, and
    anything else names a late interaction model by short name, hub repository or folder. Names joined by `+`
    are searched together, `stored` among them being the one whose vectors the store holds. Without a name it
    is that one, else BM25.
    """
    load = partial(load_retriever, store=store, device=device, dtype=dtype)
    if name is not None and JOINED_BY in name and not os.path.exists(name):  # noqa: PTH110
        members = [member.strip() for member in name.split(JOINED_BY)]
        if not all(members) or len(set(members)) < len(members):
            raise RetrieverError(
                f"retriever {name!r}, expected different retrievers joined by +, such as stored+bm25"
            )
        if _STORED in members and store.vectors is None:
            raise RetrieverError(
                f"retriever {name!r}, but the page store at {store.uri} holds no vectors; name another "
                "retriever, or index with a late interaction retriever"
            )
        return HybridRetriever([load(None if member == _STORED else member) for member in members])
    if name is None and store.vectors is not None:
        source = store.vectors.origin.source
        try:
            return load(source)
        except RetrieverError as error:
            raise RetrieverError(
                f"the page store at {store.uri} holds vectors of {source}, which cannot be loaded: {error}. "
                "Name the retriever as it is called now, or bm25"
            ) from error
    name = name or "bm25"
    load_plugins()
    if name in RETRIEVERS:
        return RETRIEVERS[name](store)
    if name.lower() == "bm25":
        from ridgerank.retrievers.bm25 import BM25

        return BM25(store)
    if name.startswith(_DENSE):
        from ridgerank.retrievers.dense import DenseText

        source = name.removeprefix(_DENSE)
        if not source:
            raise RetrieverError(
                "dense: without a model; name one, as in dense:Linq-AI-Research/Linq-Embed-Mistral"
            )
        return DenseText(source, store, device=device, dtype=dtype)
    from ridgerank.retrievers.encoders import load_encoder
    from ridgerank.retrievers.late_interaction import LateInteraction

    key = (name, str(device), str(dtype))
    encoder = _ENCODERS.get(key)
    if encoder is None:
        encoder = _ENCODERS[key] = load_encoder(name, device=device, dtype=dtype)
    return LateInteraction(encoder, store)

"""From a name to a `Retriever` over a store. Models are imported only where one is named."""

from typing import TYPE_CHECKING

from ridgerank.errors import RetrieverError
from ridgerank.retrievers.base import Retriever
from ridgerank.store.page_store import PageStore

if TYPE_CHECKING:
    import torch

_DENSE = "dense:"


def load_retriever(
    name: str | None,
    store: PageStore,
    *,
    device: "str | torch.device | None" = None,
    dtype: "torch.dtype | None" = None,
) -> Retriever:
    """Load the retriever called `name` to search in `store`.

    `bm25` searches the text of the pages, `dense:NAME` does so with a sentence-transformers model, and
    anything else names a late interaction model by short name, hub repository or folder. Without a name it is
    the one whose vectors the store holds, else BM25.
    """
    if name is None and store.vectors is not None:
        return _load_stored_retriever(store.vectors.origin.source, store, device=device, dtype=dtype)
    name = name or "bm25"
    if name.lower() == "bm25":
        from ridgerank.retrievers.bm25 import BM25

        return BM25(store)
    if name.startswith(_DENSE):
        from ridgerank.retrievers.dense_text import DenseText

        source = name.removeprefix(_DENSE)
        if not source:
            raise RetrieverError(
                "dense: without a model; name one, as in dense:Linq-AI-Research/Linq-Embed-Mistral"
            )
        return DenseText(source, store, device=device, dtype=dtype)
    from ridgerank.retrievers.encoders.load import load_encoder
    from ridgerank.retrievers.late_interaction import LateInteraction

    return LateInteraction(load_encoder(name, device=device, dtype=dtype), store)


def _load_stored_retriever(
    source: str, store: PageStore, *, device: "str | torch.device | None", dtype: "torch.dtype | None"
) -> Retriever:
    try:
        return load_retriever(source, store, device=device, dtype=dtype)
    except RetrieverError as error:
        raise RetrieverError(
            f"the page store at {store.uri} holds vectors of {source}, which does not serve: {error}. "
            "Name the retriever as it is called now, or bm25"
        ) from error

"""Dense text retrieval: one vector a page, by a sentence-transformers model, kept beside the store."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ridgerank.backbones.base import fingerprint_weights
from ridgerank.backbones.load import placement
from ridgerank.backbones.model_settings import absolute_name
from ridgerank.backbones.weights import find_file, reading, require_finite
from ridgerank.errors import ArtifactError, BackboneError, RetrieverError
from ridgerank.extras import require_packages
from ridgerank.lineage import fingerprint
from ridgerank.ragged import Floats
from ridgerank.retrievers.base import TextRetriever
from ridgerank.store import layout
from ridgerank.store.lance_dataset import read_file, write_file
from ridgerank.store.page_store import PageStore

logger = logging.getLogger(__name__)


class Embeddings:
    """The embeddings of a store's pages by one embedder."""

    def __init__(self, uri: str, fingerprint: str) -> None:
        """Read the embeddings kept under this fingerprint, if there are any."""
        self._folder, self._name = f"{uri.rstrip('/')}/{layout.EMBEDDINGS}", f"{fingerprint}.safetensors"
        self._row_of: dict[str, int] = {}
        self._vectors = np.zeros((0, 0), dtype=np.float32)
        content = read_file(self._folder, self._name)
        if content is None:
            return
        try:
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            page_ids = json.loads(header["__metadata__"]["page_ids"])
            self._vectors = load(content)["embeddings"]
            self._row_of = dict(zip(page_ids, range(len(self._vectors)), strict=True))
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise ArtifactError(
                f"{self._folder}/{self._name} cannot be read as embeddings ({error}); remove it"
            ) from error

    def __contains__(self, page_id: object) -> bool:
        return page_id in self._row_of

    def rows(self, page_ids: Sequence[str]) -> NDArray[np.float32]:
        """Embeddings (pages, dim) of pages that are in here."""
        return self._vectors[[self._row_of[page_id] for page_id in page_ids]]

    def add(self, page_ids: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Add the embeddings (pages, dim) of further pages, and write the file."""
        self._row_of |= {page_id: len(self._row_of) + position for position, page_id in enumerate(page_ids)}
        self._vectors = np.concatenate([self._vectors, vectors]) if self._vectors.size else vectors
        ids = json.dumps(list(self._row_of))
        write_file(self._folder, self._name, save({"embeddings": self._vectors}, metadata={"page_ids": ids}))


INSTRUCTION = "Instruct: Given a question, retrieve passages that answer the question\nQuery: "
"""Precedes a query for embedders tuned from a language model, such as E5-Mistral."""
_PUBLISHED_INSTRUCTIONS = {
    "linq-embed-mistral": (
        "Instruct: Given a question, retrieve Wikipedia passages that answer the question\nQuery: "
    )
}
"""Model → what is put before a query in published use, if its configuration has no query prompt."""
_NO_TEXT_SCORE = -1.0
"""The score of a page without text: below every cosine."""
_PAGES_PER_SAVE = 512
"""Pages embedded between two writes of the file."""


@dataclass(frozen=True, eq=False)
class _Embedder:
    model: Any
    digest: str
    """Taken before the model's first use: what a tokenizer says of itself changes when it pads."""


_EMBEDDERS: WeakValueDictionary[tuple[str, str, str], _Embedder] = WeakValueDictionary()
"""Those in use: stores that are served together share them."""


class DenseText(TextRetriever):
    """Pages by the cosine of their text's embedding and the query's.

    The query prompt in the model's configuration is used if there is one. Otherwise, a model that pools
    the last token (a language model tuned to embed) gets the query after the instruction it is
    published with, or after `INSTRUCTION`; pages get no prompt.
    """

    def __init__(
        self,
        source: str,
        store: PageStore,
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.name = f"dense:{Path(source).name if os.path.isdir(source) else source}"  # noqa: PTH112
        self.source = f"dense:{absolute_name(source)}"
        texts = self._read_texts(store, str.strip)
        key = (source, str(device), str(dtype))
        embedder = _EMBEDDERS.get(key)
        if embedder is None:
            model = _load(source, device, dtype)
            embedder = _EMBEDDERS[key] = _Embedder(model, _fingerprint(model))
        self._embedder, self._model = embedder, embedder.model
        self._prompt = _query_prompt(self._model, source)
        self.identity = f"dense:{fingerprint({'pages': embedder.digest, 'queries': self._prompt})}"
        self._page_embeddings = self._embed_pages(texts, Embeddings(store.uri, embedder.digest))
        self._blank = np.array([not text.strip() for text in texts.values()])

    def _scores(self, queries: Sequence[str]) -> Floats:
        """Cosines (queries, pages)."""
        query_embeddings = self._embed(list(queries), prompt=self._prompt)
        cosines = (query_embeddings @ self._page_embeddings.T).astype(np.float64)
        cosines[:, self._blank] = _NO_TEXT_SCORE
        return cosines

    def _embed_pages(self, texts: dict[str, str], cache: Embeddings) -> NDArray[np.float32]:
        missing = [page_id for page_id in texts if page_id not in cache]
        for start in range(0, len(missing), _PAGES_PER_SAVE):
            ids = missing[start : start + _PAGES_PER_SAVE]
            cache.add(ids, self._embed([texts[page_id] for page_id in ids], prompt=None))
            logger.info("%s: %d of %d pages embedded", self.name, start + len(ids), len(missing))
        return cache.rows(self._ids)

    def _embed(self, texts: list[str], *, prompt: str | None) -> NDArray[np.float32]:
        encode = self._model.encode_document if prompt is None else self._model.encode_query
        embeddings = encode(texts, prompt=prompt, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(embeddings, dtype=np.float32)


def _load(source: str, device: str | torch.device | None, dtype: torch.dtype | None) -> Any:  # noqa: ANN401
    require_packages("sentence_transformers")
    from sentence_transformers import SentenceTransformer

    resolved_device, resolved_dtype = placement(device, dtype)
    try:
        with reading("the text embedder", source):
            _require_safetensors(source)
            model = SentenceTransformer(
                source,
                device=str(resolved_device),
                trust_remote_code=False,
                model_kwargs={"dtype": resolved_dtype, "use_safetensors": True},
            )
        require_finite(source, model)
    except BackboneError as error:
        raise RetrieverError(str(error)) from error
    return model.eval()


def _require_safetensors(source: str) -> None:
    """Refuse weights beside the transformer's own that would be unpickled."""
    modules = find_file(source, "modules.json")
    for module in [] if modules is None else json.loads(modules.read_text(encoding="utf-8")):
        files = [f"{module['path']}/{name}" for name in ("model.safetensors", "pytorch_model.bin")]
        if module["path"] and [find_file(source, name) is not None for name in files] == [False, True]:
            raise RetrieverError(
                f"{source}: {files[1]} is not read, expected {files[0]}; save the model again"
            )


def _query_prompt(model: Any, source: str) -> str:  # noqa: ANN401
    prompt: str = model.prompts.get("query") or ""
    if prompt:
        return prompt
    pools_last_token = any("lasttoken" in getattr(module, "pooling_mode", ()) for module in model)
    instruction = _PUBLISHED_INSTRUCTIONS.get(Path(source).name.casefold(), INSTRUCTION)
    return instruction if pools_last_token else ""


def _fingerprint(model: Any) -> str:  # noqa: ANN401
    return fingerprint(
        {
            "weights": fingerprint_weights(sorted(model.named_parameters())),
            "tokenizer": model.tokenizer.backend_tokenizer.to_str(),
            "modules": [type(module).__name__ for module in model],
            "page prompt": model.prompts.get("document") or "",
            "length": model.max_seq_length,
        }
    )

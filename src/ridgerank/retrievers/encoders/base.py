"""A late interaction model: page images and queries in, vectors of unit length out.

`MultiVectorEncoder` holds what the families share: the prompt of a query, the normalization of vectors, the
fingerprint. A family turns a page into tokens and runs its model. Pages run one at a time, so that a page's
vectors do not depend on other pages; queries run in batches, padded on the right.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from scipy.cluster.hierarchy import fcluster, linkage
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BaseImageProcessor, BatchFeature, PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.base import fingerprint_processor
from ridgerank.errors import RetrieverError
from ridgerank.lineage import fingerprint
from ridgerank.store.vector_columns import VectorOrigin


@dataclass(frozen=True, slots=True)
class EncoderPrompt:
    """The words around a page and around a query."""

    page_prompt: str
    """The prompt of a page, with the image token once, for the image."""
    image_token: str
    image_token_id: int
    query_prefix: str
    """Plain text before the query."""
    after_query: str
    """Follows the query: filler tokens whose vectors expand the query."""
    before_query: str = ""
    """Control tokens before the prefix, if any."""

    def __post_init__(self) -> None:
        if self.page_prompt.count(self.image_token) != 1:
            raise RetrieverError(
                f"the page prompt {self.page_prompt!r} holds the image token {self.image_token!r} "
                f"{self.page_prompt.count(self.image_token)} times, wanted once; the tokenizer and the "
                "processor settings of this folder do not belong together"
            )

    def page(self, visual_positions: int) -> str:
        """The prompt of a page with this number of visual positions."""
        return self.page_prompt.replace(self.image_token, self.image_token * visual_positions)

    def describe(self) -> dict[str, Any]:
        """Everything that decides the tokens, for a fingerprint."""
        return asdict(self)


_QUERIES_PER_BATCH = 32
_SAMPLES = 4096
"""Values read of each tensor for the fingerprint."""


class MultiVectorEncoder(ABC):
    """One loaded late interaction model. Build it with `load_encoder`."""

    def __init__(
        self,
        source: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        image_processor: BaseImageProcessor,
        prompt: EncoderPrompt,
    ) -> None:
        """Take a model in evaluation mode, on its device, with its tokenizer and PIL image processor."""
        self.source = source
        self._model = model
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._plain = Tokenizer.from_str(self._backend.to_str())
        self._plain.encode_special_tokens = True  # text of a query never becomes a control token
        self._image_processor = image_processor
        self._prompt = prompt
        self._before, self._after = self._tokenize(prompt.before_query), self._tokenize(prompt.after_query)
        self._fingerprint = fingerprint(
            {
                "weights": fingerprint_values(model),
                "processor": fingerprint_processor(image_processor, tokenizer),
                "prompt": prompt.describe(),
            }
        )

    @property
    def name(self) -> str:
        """The hub repository, or the last part of the folder."""
        return Path(self.source).name if Path(self.source).is_dir() else self.source

    @property
    def origin(self) -> VectorOrigin:
        """What its vectors are made with, as a store records it."""
        return VectorOrigin(self.source, self._fingerprint, self.dim)

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        device: torch.device = self._model.device
        return device

    @property
    @abstractmethod
    def dim(self) -> int:
        """Numbers in a vector."""

    def embed_pages(self, images: Sequence[Image]) -> list[NDArray[np.float16]]:
        """Vectors (vectors, dim) of each page, of unit length."""
        with torch.inference_mode():
            pages = [_unit(self._page(image)).float().cpu().numpy() for image in images]
        return [page.astype(np.float16) for page in pages]

    def embed_queries(self, queries: Sequence[str]) -> list[Tensor]:
        """Vectors (tokens, dim) of each query, float32, of unit length, on the model's device."""
        tokens = [torch.tensor(self.query_ids(query)) for query in queries]
        query_vectors: list[Tensor] = []
        for start in range(0, len(tokens), _QUERIES_PER_BATCH):
            batch = tokens[start : start + _QUERIES_PER_BATCH]
            ids = pad_sequence(batch, batch_first=True).to(self.device)
            mask = pad_sequence([torch.ones_like(token_ids) for token_ids in batch], batch_first=True).to(
                self.device
            )
            with torch.inference_mode():
                vectors = _unit(self._query_batch(ids, mask)).float()
            # Outside inference mode, so that callers may change the vectors in place.
            query_vectors += [vectors[row, : len(token_ids)].clone() for row, token_ids in enumerate(batch)]
        return query_vectors

    def query_ids(self, query: str) -> list[int]:
        """Tokens of a query as the model was trained to read it."""
        ids = list(self._plain.encode(self._prompt.query_prefix + query, add_special_tokens=False).ids)
        if self._prompt.image_token_id in ids:
            raise RetrieverError(
                f"the query {query!r} holds text that {self.name} reads as a page image; leave that text out"
            )
        return [*self._before, *ids, *self._after]

    def page_ids(self, visual_positions: int) -> list[int]:
        """Tokens of a page with this number of visual positions."""
        return self._tokenize(self._prompt.page(visual_positions))

    @abstractmethod
    def _page(self, image: Image) -> Tensor:
        """Projected states (positions, dim) of a page."""

    @abstractmethod
    def _query_batch(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Projected states (queries, tokens, dim) of tokens (queries, tokens), where `mask` is 1."""

    def _process(self, image: Image) -> BatchFeature:
        try:
            return self._image_processor(images=[image], return_tensors="pt").to(self.device)
        except ValueError as error:
            raise RetrieverError(f"the image processor of {self.name} refused a page: {error}") from error

    def _tokenize(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)


def _unit(states: Tensor) -> Tensor:
    unit: Tensor = states / states.norm(dim=-1, keepdim=True)
    return unit


def fingerprint_values(model: torch.nn.Module) -> str:
    """Digest every parameter's name, shape and evenly spaced values, whatever precision it was loaded in.

    Pages embedded on a GPU in bfloat16 may be searched on a CPU in float32: the vectors differ by rounding.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in sorted(model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        values = parameter.detach().flatten()
        sample = values[:: max(1, values.numel() // _SAMPLES)].to(torch.bfloat16)
        digest.update(sample.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def pool_vectors(vectors: NDArray[np.float32], factor: int) -> NDArray[np.float32]:
    """Average (vectors, dim) of unit length into ⌈vectors / factor⌉ or fewer, of unit length again.

    Vectors are grouped by Ward's hierarchical clustering; a group becomes its mean, scaled to length 1.
    Factor 1 leaves them as they are. Queries are never pooled.
    """
    if factor == 1 or len(vectors) < 2:
        return vectors
    max_groups = -(-len(vectors) // factor)
    groups = fcluster(linkage(vectors, method="ward"), t=max_groups, criterion="maxclust") - 1
    sums = np.zeros((int(groups.max()) + 1, vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, groups, vectors)
    # Opposite vectors may cancel out; what is left of them has no direction and scores 0 with any query.
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    means: NDArray[np.float64] = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return means.astype(np.float32)

"""Late interaction models: page images and queries in, vectors of unit length out.

`MultiVectorEncoder` holds what the families share: the prompt of a query, the normalization of vectors, the
fingerprint. A family turns a page into tokens and runs its model: ColPali, ColQwen2, and ColQwen2.5 as an
adapter. Pages run one at a time, so that a page's vectors do not depend on other pages; queries run in
batches, padded on the right. `load_encoder` goes from a name or a folder to an encoder.
"""

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL.Image import Image
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from ridgerank.backbones.base import fingerprint_processor, fingerprint_weights
from ridgerank.backbones.load import load_model, placement
from ridgerank.backbones.weights import (
    NO_CODE,
    apply_adapter,
    find_adapter_base,
    find_weights,
    load_config,
    reading,
    require_finite,
    require_sizes,
)
from ridgerank.errors import BackboneError, RetrieverError
from ridgerank.extras import load_plugins
from ridgerank.lineage import fingerprint
from ridgerank.store.vector_columns import VectorOrigin

logger = logging.getLogger(__name__)

SHORT_NAMES = {
    "colpali-v1.3": "vidore/colpali-v1.3-hf",
    "colqwen2-v1.0": "vidore/colqwen2-v1.0-hf",
    "colnomic-3b": "nomic-ai/colnomic-embed-multimodal-3b",
    "colnomic-7b": "nomic-ai/colnomic-embed-multimodal-7b",
}
"""Short name → hub repository."""
PAGE_PROMPT = (
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe the image.<|im_end|><|endoftext|>"
)
"""The prompt of a page for models on Qwen's vision language models."""
THINKING_TOKENS = 10
"""Filler tokens after a query."""
_ADAPTED_DIM = 128
_PROJECTION = "custom_text_proj."
"""A part of the model that an adapter brings and its base has not."""
_RENAMED = {
    r"^model\.(visual|language_model)\.": r"\1.",
    r"^model\.(embed_tokens|layers|norm)\.": r"language_model.\1.",
}
"""Names of parts in earlier layouts, and what they are now."""
_QUERIES_PER_BATCH = 32


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
                f"{self.page_prompt.count(self.image_token)} times, expected once; the tokenizer and the "
                "processor settings of this folder do not belong together"
            )

    def page(self, visual_positions: int) -> str:
        """The prompt of a page with this number of visual positions."""
        return self.page_prompt.replace(self.image_token, self.image_token * visual_positions)


class MultiVectorEncoder(ABC):
    """One loaded late interaction model. Build it with `load_encoder`."""

    def __init__(
        self,
        source: str,
        model: transformers.PreTrainedModel,
        tokenizer: transformers.PreTrainedTokenizerFast,
        image_processor: transformers.BaseImageProcessor,
        prompt: EncoderPrompt,
    ) -> None:
        """Take a model in evaluation mode, on its device, with its tokenizer and PIL image processor."""
        self.source = source
        self._model = model
        self.device: torch.device = model.device
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._plain = Tokenizer.from_str(self._backend.to_str())
        self._plain.encode_special_tokens = True  # text of a query never becomes a control token
        self._image_processor = image_processor
        self._vlm: transformers.PreTrainedModel = getattr(model, "vlm", model)
        own = hasattr(model, "custom_text_proj")
        self._projection: nn.Linear = model.custom_text_proj if own else model.embedding_proj_layer
        self._prompt = prompt
        self._before, self._after = self._tokenize(prompt.before_query), self._tokenize(prompt.after_query)
        self._fingerprint = fingerprint(
            {
                "weights": fingerprint_weights(sorted(model.named_parameters())),
                "processor": fingerprint_processor(image_processor, tokenizer),
                "prompt": asdict(prompt),
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
    def dim(self) -> int:
        """Numbers in a vector."""
        return int(self._projection.out_features)

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
            ones = [torch.ones_like(token_ids) for token_ids in batch]
            mask = pad_sequence(ones, batch_first=True).to(self.device)
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
        """Projected states (queries, tokens, dim) of tokens (queries, tokens) at which `mask` is 1."""

    def _run(self, ids: Tensor, mask: Tensor, **inputs: Tensor) -> Tensor:
        """Projected states of tokens and what goes with them."""
        states = self._vlm(input_ids=ids, attention_mask=mask, use_cache=False, **inputs).last_hidden_state
        projected: Tensor = self._projection(states.to(self._projection.weight.dtype))
        return projected

    def _process(self, image: Image) -> transformers.BatchFeature:
        try:
            return self._image_processor(images=[image], return_tensors="pt").to(self.device)
        except ValueError as error:
            raise RetrieverError(f"the image processor of {self.name} refused a page: {error}") from error

    def _tokenize(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)


def _unit(states: Tensor) -> Tensor:
    unit: Tensor = states / states.norm(dim=-1, keepdim=True)
    return unit


class ColPali(MultiVectorEncoder):
    """ColPali-v1.3 and its kin."""

    model_class = transformers.ColPaliForRetrieval
    image_processor_class = SiglipImageProcessorPil

    @staticmethod
    def prompt(
        model: transformers.PreTrainedModel,
        tokenizer: transformers.PreTrainedTokenizerFast,
        settings: Mapping[str, Any],
    ) -> EncoderPrompt:
        """The words of transformers' `ColPaliProcessor`; a folder may bring its own."""
        bos, image_id = tokenizer.bos_token, model.config.vlm_config.image_token_id
        image = tokenizer.convert_ids_to_tokens(image_id)
        words = settings.get("visual_prompt_prefix") or "Describe the image."
        return EncoderPrompt(
            page_prompt=f"{image}{bos}{words}\n",
            image_token=image,
            image_token_id=image_id,
            before_query=bos,
            query_prefix=settings.get("query_prefix") or "Question: ",
            after_query=f"{tokenizer.pad_token * THINKING_TOKENS}\n",
        )

    def _page(self, image: Image) -> Tensor:
        vision = self._model.config.vlm_config.vision_config
        ids = torch.tensor([self.page_ids((vision.image_size // vision.patch_size) ** 2)], device=self.device)
        pixels = self._process(image)["pixel_values"].to(self._model.dtype)
        types = torch.zeros_like(
            ids
        )  # of 0: every token attends to every other, as PaliGemma reads its prefix
        return self._run(ids, torch.ones_like(ids), token_type_ids=types, pixel_values=pixels)[0]

    def _query_batch(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self._run(ids, mask, token_type_ids=torch.zeros_like(ids))


class ColQwen2(MultiVectorEncoder):
    """ColQwen2-v1.0, and folders of its class: an image is a grid, with positions on three axes."""

    model_class = transformers.ColQwen2ForRetrieval
    image_processor_class = Qwen2VLImageProcessorPil
    query_end = "\n"
    """Follows the filler tokens."""

    @classmethod
    def prompt(
        cls,
        model: transformers.PreTrainedModel,
        tokenizer: transformers.PreTrainedTokenizerFast,
        settings: Mapping[str, Any],
    ) -> EncoderPrompt:
        """The words these models were trained with; a folder may bring its own."""
        image_id = getattr(model.config, "vlm_config", model.config).image_token_id
        return EncoderPrompt(
            page_prompt=settings.get("visual_prompt_prefix") or PAGE_PROMPT,
            image_token=tokenizer.convert_ids_to_tokens(image_id),
            image_token_id=image_id,
            query_prefix=settings.get("query_prefix") or "Query: ",
            after_query=tokenizer.pad_token * THINKING_TOKENS + cls.query_end,
        )

    def _page(self, image: Image) -> Tensor:
        batch = self._process(image)
        grid = batch["image_grid_thw"]
        positions_of_image = int(grid.prod()) // self._image_processor.merge_size**2
        ids = torch.tensor([self.page_ids(positions_of_image)], device=self.device)
        # transformers falls back to one axis unless told which tokens are visual; these models were trained
        # with three, so the positions are passed.
        visual = (ids == self._prompt.image_token_id).int()
        positions, _ = self._vlm.get_rope_index(ids, mm_token_type_ids=visual, image_grid_thw=grid)
        return self._run(
            ids,
            torch.ones_like(ids),
            position_ids=positions,
            pixel_values=batch["pixel_values"],
            image_grid_thw=grid,
        )[0]

    def _query_batch(self, ids: Tensor, mask: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=self.device).expand(3, len(ids), -1)
        return self._run(ids, mask, position_ids=positions)


class ColQwen25(ColQwen2):
    """ColNomic-7B and -3B, ColQwen2.5: adapters on Qwen2.5-VL."""

    query_end = ""


class ProjectedQwen25(transformers.Qwen2_5_VLModel):  # type: ignore[misc]
    """Qwen2.5-VL without its language head, and the projection under the name it was published with."""

    def __init__(self, config: transformers.Qwen2_5_VLConfig) -> None:
        super().__init__(config)
        self.custom_text_proj = nn.Linear(config.text_config.hidden_size, _ADAPTED_DIM)
        self.post_init()


def load_adapted_model(
    source: str, base: str, config: transformers.PreTrainedConfig, *, dtype: torch.dtype
) -> ProjectedQwen25:
    """Load the base an adapter was made for, and the adapter on it; a part without weights is an error."""
    model: ProjectedQwen25
    require_sizes(base, ProjectedQwen25, config, find_weights(base), without=(_PROJECTION,))
    model, loading = ProjectedQwen25.from_pretrained(
        base, dtype=dtype, key_mapping=_RENAMED, output_loading_info=True, use_safetensors=True, **NO_CODE
    )
    replaced_parts = apply_adapter(model, source, None, renamed=_RENAMED)
    uninitialized = sorted(
        name for name in loading["missing_keys"] if name.rpartition(".")[0] not in replaced_parts
    )
    if uninitialized:
        shown = f"{', '.join(uninitialized[:3])} ({len(uninitialized)} in all)"
        raise RetrieverError(
            f"neither the adapter {source!r} nor its base {base!r} has weights of {shown}; use its own base"
        )
    return model


FAMILIES: dict[str, type[ColPali | ColQwen2]] = {"colpali": ColPali, "colqwen2": ColQwen2}
"""Families by the `model_type` of their configuration."""
ADAPTED: dict[str, type[ColPali | ColQwen2]] = {"qwen2_5_vl": ColQwen25}
"""Families published as an adapter, by the `model_type` of its base."""


def load_encoder(
    name: str | Path, *, device: str | torch.device | None = None, dtype: torch.dtype | None = None
) -> MultiVectorEncoder:
    """Load a late interaction model by short name, hub repository or folder."""
    source = _resolve(str(name))
    device, dtype = placement(device, dtype)
    try:
        with reading("its tokenizer (tokenizer.json, tokenizer_config.json)", source):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **NO_CODE)
        with reading("its settings (config.json, adapter_config.json, processor_config.json)", source):
            settings, _ = transformers.ProcessorMixin.get_processor_dict(source)
            adapter_base = find_adapter_base(source)
            base = adapter_base or source
            _, config = load_config(base)
        with reading("its weights", source):
            load_plugins()
            family = _find_family(source, config.model_type, adapter_base)
            if adapter_base is not None:
                model = load_adapted_model(source, base, config, dtype=dtype)
            else:
                model = load_model(source, source, {}, family.model_class, config, dtype)
            require_finite(source, model)
        with reading("preprocessor_config.json", source):
            image_processor = family.image_processor_class.from_pretrained(source)
    except BackboneError as error:
        raise RetrieverError(str(error)) from error
    logger.info("loaded %s (%s) on %s in %s", name, family.__name__, device, dtype)
    model = model.eval().requires_grad_(False).to(device)
    prompt = family.prompt(model, tokenizer, settings)
    return family(source, model, tokenizer, image_processor, prompt)


def _resolve(name: str) -> str:
    """Find the folder or repository; a bare word has to be a short name."""
    if name.lower() == "bm25" or name.startswith("dense:"):
        raise RetrieverError(
            f"{name} reads the text of pages and makes no vectors of their images: leave it out"
        )
    if name.lower() in SHORT_NAMES:
        return SHORT_NAMES[name.lower()]
    if os.path.isdir(name):  # noqa: PTH112 (a `Path` raises where a name is too long)
        return str(Path(name).resolve())
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise RetrieverError(
            f"no retriever called {name!r}, and no such folder; known: bm25, dense:NAME, "
            f"{', '.join(SHORT_NAMES)}, or a repository as owner/name"
        )
    return name


def _find_family(source: str, model_type: str, base: str | None) -> type[ColPali | ColQwen2]:
    families, what = (FAMILIES, "a model") if base is None else (ADAPTED, f"an adapter on {base}, a model")
    if model_type not in families:
        raise RetrieverError(
            f"{source} is {what} of type {model_type!r}, which is not a known retriever; known types: "
            f"{', '.join(FAMILIES)}, and adapters on {', '.join(ADAPTED)} (of ColPali, the repository that "
            "ends in -hf)"
        )
    return families[model_type]

"""A multimodal language model cut at a layer: encode pages once, run queries over them, read the margin.

`Backbone` holds what every family shares. A family says how its images become tokens and how its decoder's
modules are named; see `qwen2_5_vl.py` for the shortest example. Nothing here changes the model: positions
are passed explicitly, so calls do not depend on each other.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BaseImageProcessor, BatchFeature, PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.decoder import Decoder
from ridgerank.backbones.dense import DensePrefixes
from ridgerank.backbones.fingerprints import fingerprint_processor, fingerprint_weights
from ridgerank.backbones.prefix import Geometry, Prefix, PrefixBatch
from ridgerank.backbones.prompt import Prompt, PromptTokens
from ridgerank.errors import BackboneError
from ridgerank.lineage import fingerprint


@dataclass(frozen=True, slots=True, eq=False)
class PageTokens:
    """A page as the decoder receives it."""

    ids: Tensor
    """(positions,) int64."""
    visual: Tensor
    """(positions,) bool."""
    features: Tensor
    """(visual positions, width): what the vision tower puts there."""
    positions: Tensor
    """(axes, positions) int64: rotary positions."""
    grid: tuple[int, int]
    """Rows and columns of the visual positions."""


class Backbone(ABC):
    """One loaded model. Build it with `load_backbone`."""

    prompt: ClassVar[Prompt]
    model_class: ClassVar[type[PreTrainedModel]]
    image_processor_class: ClassVar[type[BaseImageProcessor]]
    default_max_pixels: ClassVar[int | None]
    """Pixel budget of a page unless the user says otherwise; `None` leaves the processor's own."""

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        image_processor: BaseImageProcessor,
    ) -> None:
        """Take a model in evaluation mode, on its device, with its tokenizer and PIL image processor."""
        self.name = name
        self._model = model
        self._tokenizer = tokenizer
        self._image_processor = image_processor
        self._tokens = PromptTokens(self.prompt, tokenizer.backend_tokenizer)
        config = model.config.text_config
        if config.hidden_act != "silu":
            raise BackboneError(f"{name} has the activation {config.hidden_act!r}; only 'silu' is supported")
        heads = config.num_attention_heads
        self.geometry = Geometry(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            query_heads=heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        )
        self._decoder = self._cut()

    @property
    def family(self) -> str:
        """The model's type, as transformers calls it."""
        family: str = self._model.config.model_type
        return family

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        device: torch.device = self._model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The numbers it runs with."""
        dtype: torch.dtype = self._model.dtype
        return dtype

    @property
    def answer_tokens(self) -> tuple[int, int]:
        """Ids of the tokens for yes and for no."""
        return self._tokens.answers

    def encode(self, images: Sequence[Image], *, exit_layer: int, join_layer: int = 0) -> list[Prefix]:
        """Read pages to `exit_layer`; keep rotated keys and values of layers [join_layer, exit_layer).

        The pages run as one batch, whose size is the caller's choice; sizes may differ.
        """
        self.require_layers(join_layer, exit_layer)
        if not images:
            return []
        with torch.inference_mode():
            pages = self._read(images)
            ids = pad_sequence([page.ids for page in pages], batch_first=True)
            visual = pad_sequence([page.visual for page in pages], batch_first=True)
            positions = pad_sequence([page.positions.t() for page in pages], batch_first=True)
            hidden = self._embed(ids)
            hidden[visual] = torch.cat([page.features for page in pages]).to(hidden.dtype)
            # (axes, pages, positions), or (pages, positions) for a decoder with one axis
            positions = positions.permute(2, 0, 1).squeeze(0)
            layers = self._decoder.prefill(hidden, positions, join_layer=join_layer, exit_layer=exit_layer)
        # Outside inference mode, so that what is handed out may be changed in place by anyone.
        return [
            Prefix(
                keys=torch.stack([keys[row, :, : len(page.ids)] for keys, _ in layers]),
                values=torch.stack([values[row, :, : len(page.ids)] for _, values in layers]),
                visual=page.visual.clone(),
                grid=page.grid,
                next_position=int(page.positions.max()) + 1,
            )
            for row, page in enumerate(pages)
        ]

    def require_layers(self, join_layer: int, exit_layer: int) -> None:
        """Refuse layers that this model does not have, before anything is read."""
        if not 0 <= join_layer < exit_layer <= self.geometry.layers:
            raise BackboneError(
                f"layers [{join_layer}, {exit_layer}) of a model of {self.geometry.layers} layers; "
                f"wanted 0 <= join layer < exit layer <= {self.geometry.layers}"
            )

    def states(self, query: str, prefixes: PrefixBatch) -> Tensor:
        """Raw states (pages, width), float32, of one query over K pages at its last position (eq. 5)."""
        return self.states_many([query], prefixes)

    def states_many(self, queries: Sequence[str], prefixes: PrefixBatch) -> Tensor:
        """States (pairs, width): query i over page i, all queries over one page, or one query over all."""
        pages = len(prefixes.lengths)
        if not queries or (len(queries) != pages and 1 not in (len(queries), pages)):
            raise BackboneError(
                f"{len(queries)} queries over {pages} pages; wanted as many of one as of the other, or one"
            )
        suffixes = [torch.tensor(self._tokens.suffix(query)) for query in queries]
        lengths = torch.tensor([len(suffix) for suffix in suffixes])
        with torch.inference_mode():
            hidden = self._embed(pad_sequence(suffixes, batch_first=True).to(self.device))
            states = self._decoder.extend(hidden, lengths, prefixes)
        return states.float().clone()

    def margins(self, states: Tensor) -> Tensor:
        """uᵀ ν(h), float32, for states (pairs, width): eq. 6 at full depth, the logit lens above it.

        u is the difference of the answers' unembedding rows and ν the model's final norm. The product is
        taken in float32: half-precision logits would move in steps of 1/16.
        """
        with torch.inference_mode():
            unembedding = self._model.get_output_embeddings().weight
            yes, no = self.answer_tokens
            direction = unembedding[yes].float() - unembedding[no].float()
            normed: Tensor = self._text_model().norm(states.to(self.device, self.dtype))
            margins: Tensor = normed.float() @ direction
        return margins.clone()

    def full_margins(self, query: str, images: Sequence[Image]) -> Tensor:
        """Margins (pages,) at full depth on the uncompressed pages: the target of eq. 6."""
        pages = self.encode(images, exit_layer=self.geometry.layers)
        return self.margins(self.states(query, DensePrefixes(pages)))

    def weights_fingerprint(self) -> str:
        """Digest the weights: names, shapes, dtypes and an even sample of every tensor."""
        return fingerprint_weights(self._model)

    def processor_fingerprint(self) -> str:
        """Digest the image processor's settings and the whole tokenizer."""
        return fingerprint_processor(self._image_processor, self._tokenizer)

    def prompt_fingerprint(self) -> str:
        """Digest the prompt and its answer tokens."""
        return fingerprint(self._tokens.describe())

    @property
    @abstractmethod
    def max_pixels(self) -> int:
        """Pixel budget of a page image: a larger one is scaled down, so rendering more is waste."""

    @classmethod
    @abstractmethod
    def limit_pixels(cls, image_processor: BaseImageProcessor, max_pixels: int) -> None:
        """Set the image processor's pixel budget, before the backbone is built."""

    @abstractmethod
    def _cut(self) -> Decoder:
        """Name the parts of the text model's layers."""

    @abstractmethod
    def _text_model(self) -> PreTrainedModel:
        """Return the module with `embed_tokens`, `layers`, `norm` and `rotary_emb`."""

    @abstractmethod
    def _read(self, images: Sequence[Image]) -> list[PageTokens]:
        """Tokens, features and positions of pages, one by one."""

    def _process(self, images: Sequence[Image] | Sequence[list[Image]], **options: bool) -> BatchFeature:
        """Run the image processor."""
        try:
            return self._image_processor(images=list(images), return_tensors="pt", **options)
        except ValueError as error:
            raise BackboneError(f"the image processor of {self.name} refused a page: {error}") from error

    def _embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self._text_model().embed_tokens(ids)
        return embedded

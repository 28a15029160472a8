"""A language model cut at a layer: encode pages once, run queries over them, read the targets.

`Backbone` holds what every family shares. A family reads either a page's image (`vision.py`) or its text
(`text.py`). Nothing here changes the model: positions are passed explicitly, so calls do not depend on each
other.
"""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.decoder import (
    Block,
    Decoder,
    Geometry,
    Prefix,
    PrefixBatch,
    Rotation,
    bf16_on_cpu,
    llama_block,
    mean_log_probability,
    mean_state,
    rotate_halves,
)
from ridgerank.backbones.prompt import Prompt, PromptTokens
from ridgerank.backbones.weights import release, require_finite
from ridgerank.errors import BackboneError
from ridgerank.lineage import Lineage, StorageSetting, fingerprint
from ridgerank.page_sizing import PixelBudget
from ridgerank.records import Page, State, Target

Regions = NDArray[np.float64]
"""(positions, 4): left, top, right, bottom, each from 0 to 1."""


def cells(rows: int, columns: int) -> Regions:
    """A page cut into rows x columns equal cells, in raster order."""
    top, left = (index.ravel() for index in np.indices((rows, columns)))
    edges = np.stack([left, top, left + 1, top + 1], axis=1)
    regions: Regions = edges / np.array([columns, rows, columns, rows])
    return regions


@dataclass(frozen=True, slots=True, eq=False)
class PageTokens:
    """A page as the decoder receives it."""

    ids: Tensor
    """(positions,) int64."""
    visual: Tensor
    """(positions,) bool: where the page itself stands."""
    features: Tensor | None
    """(visual positions, width): what the vision tower puts there; None if the page is text."""
    positions: Tensor
    """(axes, positions) int64: rotary positions."""
    grid: tuple[int, int]
    layer_features: tuple[Tensor, ...] = ()
    """(visual positions, width) each: what is added there behind layer 0, 1, ..., where a family does so."""


_SAMPLES = 4096
"""Values read of each tensor: fine-tuning moves nearly all of them, and nine billion weights take seconds."""


def fingerprint_weights(parameters: Iterable[tuple[str, Tensor]]) -> str:
    """Digest every parameter's name, shape and evenly spaced values in bfloat16: 128 bits, in hex.

    So the precision a model is loaded in does not matter, nor how its file is cut into shards.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in parameters:
        digest.update(f"{name} {tuple(parameter.shape)}\n".encode())
        values = parameter.detach().flatten()
        sample = values[:: max(1, values.numel() // _SAMPLES)].to(torch.bfloat16)
        digest.update(sample.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprint_processor(image_processor: BaseImageProcessor, tokenizer: PreTrainedTokenizerFast) -> str:
    """Digest the image processor's settings and the whole tokenizer: 128 bits, in hex."""
    settings = {name: value for name, value in image_processor.to_dict().items() if value is not None}
    return fingerprint({"image": settings, "tokenizer": tokenizer.backend_tokenizer.to_str()})


Content: TypeAlias = Image | str


class Backbone(ABC):
    """One loaded model. Build it with `load_backbone`.

    Queries and a batch of prefixes pair up: query i over page i, all queries over one page, or one query over
    all pages.
    """

    prompt: Prompt
    reads_text: ClassVar[bool] = False
    """Whether a page is its text to this family, and a page without any is blank."""
    decoder_type: ClassVar[str] = ""
    rotate = staticmethod(rotate_halves)
    max_pixels: int
    """Pixel budget of a page image: a larger image is scaled down, so rendering more is waste."""
    page_budget: PixelBudget
    """How large pages are read for this model: as its image processor would have them, resized once."""
    page_text: str | None = None
    """How much of a page's text is read (`head 512`), None if the model reads images."""
    ranking_head: Callable[[Tensor], Tensor] | None = None
    """Turns normed states (pairs, width) into scores (pairs, 1), where a model was trained with one."""

    def __init__(self, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        """Take a model in evaluation mode, on its device, with its tokenizer."""
        self.name = name
        self._model = model
        self._held: dict[nn.Module, None] = {}
        self._holding = RLock()
        self._tokenizer = tokenizer
        self.tokens = PromptTokens(self.prompt, tokenizer.backend_tokenizer)
        config = model.config.get_text_config()
        if config.hidden_act != "silu":
            raise BackboneError(f"{name} has the activation {config.hidden_act!r}; only 'silu' is supported")
        if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
            raise BackboneError(f"{name} has sliding-window layers, which stored pages do not support")
        if self.decoder_type not in ("", config.model_type):
            raise BackboneError(
                f"{name} has a {config.model_type!r} decoder; only {self.decoder_type!r} is supported"
            )
        heads = config.num_attention_heads
        self.geometry = Geometry(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            query_heads=heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        )
        self.family: str = model.config.model_type
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        answers = self.tokens.answers
        if answers and (len(set(answers)) != len(answers) or max(answers) >= config.vocab_size):
            raise BackboneError(
                f"the answers of {name} are the tokens {answers} of a vocabulary of {config.vocab_size}; "
                "expected two different ones inside it"
            )
        vocabulary = tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False)
        if (last := max(vocabulary.values())) >= config.vocab_size:
            raise BackboneError(
                f"the tokenizer of {name} has tokens up to {last:,}, its weights {config.vocab_size:,}; "
                "take the tokenizer that goes with the weights"
            )
        rotary = self._text_model().rotary_emb
        self._decoder = Decoder(self._take_block, self.geometry, rotary=rotary, rotate=self.rotate)

    def hold(self, layers: int, *, pages: bool = False, head: bool = False) -> None:
        """Have in memory what runs queries up to this layer, and what reads pages or the last layer."""
        text = self._text_model()
        parts = [text.get_input_embeddings(), text.norm, text.rotary_emb]
        if pages:
            parts += self._page_readers()
        if head:
            parts += [self._model.get_output_embeddings(), *filter(None, [self.ranking_head])]
        with self._holding:
            for part in parts:
                self._bring(part)
            for layer in range(layers):
                self._decoder.block(layer)

    def clock(self) -> float:
        """Seconds, read when the device has done all that was asked of it."""
        torch.get_device_module(self.device).synchronize()
        return time.perf_counter()

    @torch.inference_mode(mode=False)
    @torch.no_grad()
    def _bring(self, part: nn.Module) -> None:
        """Move a part to where the model runs, unless it is there."""
        if part in self._held:
            return
        place = [name for name, module in self._model.named_modules() if module is part]

        def move(value: Tensor) -> Tensor:
            parameter = isinstance(value, nn.Parameter) and part is not self.ranking_head
            moved = value.to(self.device, self.dtype if parameter else value.dtype)
            if moved is not value:
                release(value)
            return moved

        part._apply(move)  # type: ignore[no-untyped-call]
        require_finite(self.name, part, place[0])
        self._held[part] = None

    @torch.inference_mode(mode=False)
    def _take_block(self, layer: int) -> Block:
        with self._holding:
            module = self._text_model().layers[layer]
            self._bring(module)
            return llama_block(module)

    @property
    def nbytes(self) -> int:
        """What the weights take that are in memory."""
        held = {id(each): each for part in self._held for each in part.parameters()}
        return sum(parameter.nbytes for parameter in held.values())

    def describe_memory(self) -> str:
        """What of the weights is in memory, in words."""
        whole = self.dtype.itemsize * sum(parameter.numel() for parameter in self._model.parameters())
        layers = sum(layer in self._held for layer in self._text_model().layers)
        vision = [part in self._held for part in self._page_readers()]
        return (
            f"{self.nbytes / 1e9:.2f} of {whole / 1e9:.2f} GB of the model in memory: {layers} of its "
            f"{self.geometry.layers} layers{'' if all(vision) else ', without what reads images'}"
        )

    def _page_readers(self) -> list[nn.Module]:
        """The parts that only reading a page needs."""
        text = self._text_model()
        return [
            part
            for part in self._model.model.children()
            if part is not text and text is not self._model.model
        ]

    @abstractmethod
    def content(self, page: Page) -> Content:
        """What of a page this family reads: its image or its text."""

    def encode(self, pages: Sequence[Content], *, exit_layer: int) -> list[Prefix]:
        """Read pages, as `content` returns them, in one batch; keep keys and values of the first layers."""
        self.geometry.require_layers(exit_layer)
        if not pages:
            return []
        self.hold(exit_layer, pages=True)
        with torch.inference_mode(), bf16_on_cpu(self.device, self.dtype):
            page_tokens = self._tokenize_pages(pages)
            ids = pad_sequence([page.ids for page in page_tokens], batch_first=True)
            visual = pad_sequence([page.visual for page in page_tokens], batch_first=True)
            positions = pad_sequence([page.positions.t() for page in page_tokens], batch_first=True)
            hidden = self._embed(ids)
            features = [page.features for page in page_tokens if page.features is not None]
            if features:
                hidden[visual] = torch.cat(features).to(hidden.dtype)
            # (axes, pages, positions), or (pages, positions) for a decoder with one axis
            positions = positions.permute(2, 0, 1).squeeze(0)
            layer_features = zip(*(page.layer_features for page in page_tokens), strict=True)
            prefixes = [self._allocate_prefix(page, exit_layer) for page in page_tokens]
            layers = self._decoder.prefill(
                hidden,
                positions,
                exit_layer=exit_layer,
                visual=visual,
                layer_features=[torch.cat(layer) for layer in layer_features],
            )
            for layer, (keys, values) in enumerate(layers):
                for row, prefix in enumerate(prefixes):
                    length = prefix.count
                    prefix.keys[layer] = keys[row, :, :length]
                    prefix.values[layer] = values[row, :, :length]
        # What is not a number stays so in all layers after it.
        if not all(torch.isfinite(part[-1]).all() for each in prefixes for part in (each.keys, each.values)):
            raise BackboneError(
                f"{self.name} makes NaN or infinite numbers of a page; look at its config.json and "
                "preprocessor_config.json, or load it in another dtype"
            )
        return prefixes

    def states(
        self,
        queries: Sequence[str],
        prefixes: PrefixBatch,
        *,
        state: State = "last",
        owners: Sequence[int] | None = None,
    ) -> Tensor:
        """Raw states (pairs, width), float32, after the batch's last layer (eq. 5).

        With `owners` (pages,), page i is for query owners[i]: several queries, each over its own pages, in
        one pass. The mean is over the query's own positions and needs no cue for an answer; a query without
        tokens is read at the instruction's last position.
        """
        rows = None if owners is None else torch.tensor(owners)
        read = self.tokens.suffix if state == "last" else self.tokens.query
        tokens = [read(query) for query in queries]
        with torch.inference_mode():
            states = self._run_suffixes(tokens, prefixes, last_only=state == "last", owners=rows)
            if state == "mean":
                states = mean_state(states, tokens if owners is None else [tokens[owner] for owner in owners])
        return states.float().clone()

    def both_states(self, query: str, prefixes: PrefixBatch) -> dict[State, Tensor]:
        """One query's states (pages, width), the last and the mean, from one pass if tokens allow it."""
        suffix, query_tokens = self.tokens.suffix(query), self.tokens.query(query)
        if suffix[: len(query_tokens)] != query_tokens:
            return {
                "last": self.states([query], prefixes, state="last"),
                "mean": self.states([query], prefixes, state="mean"),
            }
        with torch.inference_mode():
            states = self._run_suffixes([suffix], prefixes, last_only=False)
            last, mean = states[:, -1].float(), mean_state(states, [query_tokens])
        return {"last": last.clone(), "mean": mean.clone()}

    def targets(
        self,
        queries: Sequence[str],
        prefixes: PrefixBatch,
        *,
        targets: Sequence[Target] = ("margin", "likelihood"),
    ) -> dict[Target, Tensor]:
        """Margin (eq. 6) and log p(query | page) per token, (pairs,), over pages encoded to full depth."""
        if prefixes.exit_layer != self.geometry.layers:
            raise BackboneError(
                f"targets over pages of {prefixes.exit_layer} layers of "
                f"{self.geometry.layers}; encode them to full depth"
            )
        if self.ranking_head is not None and "likelihood" in targets:
            raise BackboneError(f"{self.name} has a ranking head and no trained language head: no likelihood")
        if tuple(targets) == ("margin",):
            return {"margin": self.logit_lens(self.states(queries, prefixes))}
        self.hold(self.geometry.layers, head=True)
        query_tokens = [self.tokens.query(query) for query in queries]
        if any(len(ids) < 2 for ids in query_tokens):
            raise BackboneError("an empty query has no likelihood; expected at least one token")
        tokens = [ids[:-1] for ids in query_tokens]
        if "margin" in targets:
            tokens = [self.tokens.suffix(query) for query in queries]
            if any(ids != suffix[: len(ids)] for ids, suffix in zip(query_tokens, tokens, strict=True)):
                return {each: self.targets(queries, prefixes, targets=(each,))[each] for each in targets}
        norm, unembedding = self._text_model().norm, self._model.get_output_embeddings().weight
        with torch.inference_mode():
            states = self._run_suffixes(tokens, prefixes, last_only=False)
            likelihoods = mean_log_probability(states, query_tokens, norm=norm, unembedding=unembedding)
            last = torch.tensor([len(ids) - 1 for ids in tokens]).expand(len(states))
            answers = states[torch.arange(len(states)), last].float()
        read: dict[Target, Tensor] = {"likelihood": likelihoods.clone()}
        if "margin" in targets:
            read["margin"] = self.logit_lens(answers)
        return {target: read[target] for target in targets}

    def attention(self, query: str, page: PrefixBatch, *, state: State = "last") -> Tensor:
        """What a query's last position, or the mean of its own, attends to: (layers, page + suffix)."""
        tokens = self.tokens.suffix(query) if state == "last" else self.tokens.query(query)
        layers: list[Tensor] = []
        self.hold(page.exit_layer)
        with torch.inference_mode():
            self._decoder.extend(
                self._embed(torch.tensor([tokens], device=self.device)), None, page, attention=layers
            )
            weights = [layer[:, -1] if state == "last" else mean_state(layer, [tokens]) for layer in layers]
        return torch.cat(weights).clone()

    def logit_lens(self, states: Tensor) -> Tensor:
        """uᵀ ν(h), (pairs,): the margin at full depth (eq. 6), a lens above it; or a ranking head's score."""
        self.hold(0, head=True)
        with torch.inference_mode():
            normed: Tensor = self._text_model().norm(states.to(self.device, self.dtype))
            if self.ranking_head is not None:
                margins: Tensor = self.ranking_head(normed.float()).squeeze(-1)
            else:
                unembedding = self._model.get_output_embeddings().weight
                yes, no = self.tokens.answers
                # Half-precision logits would move in steps of 1/16.
                margins = normed.float() @ (unembedding[yes].float() - unembedding[no].float())
        return margins.clone()

    def regions(self, grid: tuple[int, int], aspect: float) -> Regions:
        """Where the visual positions of a grid lie on a page whose width is `aspect` times its height."""
        return cells(*grid)

    def lineage(self, storage: StorageSetting) -> Lineage:
        """The lineage of pages that are encoded with this model and stored with this setting."""
        return Lineage(
            backbone=self.name,
            family=self.family,
            **self.fingerprints,
            storage=storage,
            max_pixels=None if self.reads_text else self.max_pixels,
            page_text=self.page_text,
            prompt_name=self.prompt.name or None,
            made_by={
                "transformers": transformers.__version__,
                "dtype": str(self.dtype).removeprefix("torch."),
                "device": self.device.type,
            },
        )

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Digests of weights, prompt and everything that turns a page into tokens: 128 bits each, in hex."""
        return {
            "weights": fingerprint_weights(self._read_parameters()),
            "processor": self._fingerprint_processor(),
            "prompt": fingerprint(self.tokens.describe()),
        }

    def _read_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """All of them by name, without keeping in memory what is not held."""
        held = {id(each) for part in self._held for each in part.parameters()}
        for name, parameter in sorted(self._model.named_parameters()):
            yield name, parameter
            if id(parameter) not in held:
                release(parameter)

    def rotation(self, axes: int) -> Rotation:
        """How keys are turned by positions of so many axes."""
        self.hold(0)
        return self._decoder.read_rotation(axes, self.device)

    @abstractmethod
    def _fingerprint_processor(self) -> str:
        """Digest everything that turns a page into tokens."""

    @abstractmethod
    def _text_model(self) -> PreTrainedModel:
        """Return the module with `embed_tokens`, `layers`, `norm` and `rotary_emb`."""

    @abstractmethod
    def _tokenize_pages(self, pages: Sequence[Any]) -> list[PageTokens]:
        """Tokens, features and positions of pages, one by one."""

    @torch.inference_mode(mode=False)
    def _allocate_prefix(self, page: PageTokens, layers: int) -> Prefix:
        """A page's prefix whose keys and values are still to be written, and may be changed by callers."""
        shape = (layers, self.geometry.kv_heads, len(page.ids), self.geometry.head_dim)
        keys, values = (torch.empty(shape, dtype=self.dtype, device=self.device) for _ in range(2))
        return Prefix(
            keys=keys,
            values=values,
            visual=page.visual.clone(),
            grid=page.grid,
            next_position=int(page.positions.max()) + 1,
            rotary=page.positions.clone(),
        )

    def _run_suffixes(
        self,
        suffixes: Sequence[Sequence[int]],
        prefixes: PrefixBatch,
        *,
        last_only: bool,
        owners: Tensor | None = None,
    ) -> Tensor:
        """States at each suffix's last position (pairs, width), or at all (pairs, positions, width)."""
        pages = len(prefixes.lengths)
        if owners is None and (not suffixes or (len(suffixes) != pages and 1 not in (len(suffixes), pages))):
            raise BackboneError(
                f"{len(suffixes)} queries over {pages} pages; expected as many of one as of the other, or one"
            )
        self.hold(prefixes.exit_layer)
        ids = pad_sequence([torch.tensor(suffix) for suffix in suffixes], batch_first=True)
        lengths = torch.tensor([len(suffix) for suffix in suffixes]) if last_only else None
        with bf16_on_cpu(self.device, self.dtype):
            return self._decoder.extend(self._embed(ids.to(self.device)), lengths, prefixes, owners=owners)

    def _embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self._text_model().get_input_embeddings()(ids)
        return embedded


def full_margins(backbone: Backbone, query: str, pages: Sequence[Content]) -> Tensor:
    """Margins (pages,) at full depth on the uncompressed pages."""
    prefixes = PrefixBatch(backbone.encode(pages, exit_layer=backbone.geometry.layers))
    return backbone.targets([query], prefixes, targets=("margin",))["margin"]

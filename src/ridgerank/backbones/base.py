"""A language model cut at a layer: encode pages once, run queries over them, read the targets.

`Backbone` holds what every family shares. What of a page a family reads is its own: an image (`visual.py`)
or text (`causal_text.py`). It says how that becomes tokens and how its decoder's modules are named; see
`qwen2_5_vl.py` for the shortest example. Nothing here changes the model: positions are passed explicitly,
so calls do not depend on each other.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from ridgerank.backbones.attention import Attention
from ridgerank.backbones.decoder import Decoder
from ridgerank.backbones.dense_prefixes import DensePrefixes
from ridgerank.backbones.fingerprints import fingerprint_weights
from ridgerank.backbones.prefix import Geometry, Prefix, PrefixBatch
from ridgerank.backbones.prompt import Prompt, PromptTokens
from ridgerank.backbones.regions import Regions, cells
from ridgerank.errors import BackboneError
from ridgerank.lineage import fingerprint
from ridgerank.records import STATES, Page, State

Content: TypeAlias = Image | str
"""What of a page a family reads."""


@dataclass(frozen=True, slots=True, eq=False)
class PageTokens:
    """A page as the decoder receives it."""

    ids: Tensor
    """(positions,) int64."""
    visual: Tensor
    """(positions,) bool: where the page itself stands."""
    features: Tensor | None
    """(visual positions, width): what the vision tower puts there; None where the tokens say it all."""
    positions: Tensor
    """(axes, positions) int64: rotary positions."""
    grid: tuple[int, int]
    """Rows and columns of the visual positions."""
    pieces: tuple[str, ...] | None = None
    """(visual positions,): the characters each stands for, where the page is text."""


class Backbone(ABC):
    """One loaded model. Build it with `load_backbone`."""

    prompt: Prompt
    reads_text: ClassVar[bool] = False
    """Whether a page is its text to this family, and a page without any is blank."""

    def __init__(self, name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        """Take a model in evaluation mode, on its device, with its tokenizer."""
        self.name = name
        self._model = model
        self._tokenizer = tokenizer
        self._tokens = PromptTokens(self.prompt, tokenizer.backend_tokenizer)
        config = model.config.get_text_config()
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
    def nbytes(self) -> int:
        """What its weights take in memory."""
        return sum(parameter.nbytes for parameter in self._model.parameters())

    @property
    def dtype(self) -> torch.dtype:
        """The numbers it runs with."""
        dtype: torch.dtype = self._model.dtype
        return dtype

    @property
    def answer_tokens(self) -> tuple[int, int]:
        """Ids of the tokens for yes and for no."""
        return self._tokens.answers

    def encode(self, pages: Sequence[Content], *, exit_layer: int, join_layer: int = 0) -> list[Prefix]:
        """Read pages to `exit_layer`; keep rotated keys and values of layers [join_layer, exit_layer).

        `pages` are what `content` takes of them. They run as one batch, whose size is the caller's choice;
        sizes may differ.
        """
        self.require_layers(join_layer, exit_layer)
        if not pages:
            return []
        with torch.inference_mode():
            read = self._read(pages)
            ids = pad_sequence([page.ids for page in read], batch_first=True)
            visual = pad_sequence([page.visual for page in read], batch_first=True)
            positions = pad_sequence([page.positions.t() for page in read], batch_first=True)
            hidden = self._embed(ids)
            features = [page.features for page in read if page.features is not None]
            if features:
                hidden[visual] = torch.cat(features).to(hidden.dtype)
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
                pieces=page.pieces,
            )
            for row, page in enumerate(read)
        ]

    def require_layers(self, join_layer: int, exit_layer: int) -> None:
        """Refuse layers that this model does not have, before anything is read."""
        if not 0 <= join_layer < exit_layer <= self.geometry.layers:
            raise BackboneError(
                f"layers [{join_layer}, {exit_layer}) of a model of {self.geometry.layers} layers; "
                f"wanted 0 <= join layer < exit layer <= {self.geometry.layers}"
            )

    def states(self, query: str, prefixes: PrefixBatch, *, state: State = "last") -> Tensor:
        """Raw states (pages, width), float32, of one query over K pages (eq. 5)."""
        return self.states_many([query], prefixes, state=state)

    def states_many(self, queries: Sequence[str], prefixes: PrefixBatch, *, state: State = "last") -> Tensor:
        """States (pairs, width): query i over page i, all queries over one page, or one query over all.

        The mean is over the query's own positions and needs no cue for an answer; a query without tokens
        is read at the instruction's last position.
        """
        if state == "last":
            suffixes = [self._tokens.suffix(query) for query in queries]
            with torch.inference_mode():
                states = self._extend(suffixes, prefixes, last_only=True)
            return states.float().clone()
        asked = [self._tokens.asked(query) for query in queries]
        with torch.inference_mode():
            mean = _mean_of_query(self._extend(asked, prefixes, last_only=False), asked)
        return mean.clone()

    def states_together(self, queries: Sequence[str], owners: Sequence[int], prefixes: PrefixBatch) -> Tensor:
        """States (pages, width), float32, of several queries in one pass: page i is for query owners[i].

        What `states` gives for each query alone, up to the rounding that the shape of a product decides.
        """
        suffixes = [self._tokens.suffix(query) for query in queries]
        with torch.inference_mode():
            states = self._extend(suffixes, prefixes, last_only=True, owners=torch.tensor(owners))
        return states.float().clone()

    def suffix_length(self, query: str) -> int:
        """Count the tokens that a query adds to a page."""
        return len(self._tokens.suffix(query))

    def states_each(self, query: str, prefixes: PrefixBatch) -> dict[State, Tensor]:
        """One query's states (pages, width) at every place they may be read, from one pass where possible."""
        suffix, asked = self._tokens.suffix(query), self._tokens.asked(query)
        if suffix[: len(asked)] != asked:
            return {state: self.states(query, prefixes, state=state) for state in STATES}
        with torch.inference_mode():
            states = self._extend([suffix], prefixes, last_only=False)
            last, mean = states[:, -1].float(), _mean_of_query(states, [asked])
        return {"last": last.clone(), "mean": mean.clone()}

    def likelihoods(self, query: str, prefixes: PrefixBatch) -> Tensor:
        """log p(query | page) a token, float32 (pages,), over pages read to full depth."""
        return self.likelihoods_many([query], prefixes)

    def likelihoods_many(self, queries: Sequence[str], prefixes: PrefixBatch) -> Tensor:
        """Mean log probability of the query's tokens, (pairs,), paired as in `states_many`.

        The mean, not the sum: within a query both rank alike, and across queries a fit should not count a
        long one for more.
        """
        self._require_all_layers(prefixes)
        asked = self._asked(queries)
        with torch.inference_mode():
            states = self._extend([ids[:-1] for ids in asked], prefixes, last_only=False)
            return self._mean_logs(asked, states).clone()

    def targets_many(self, queries: Sequence[str], prefixes: PrefixBatch) -> tuple[Tensor, Tensor]:
        """Margins and likelihoods (pairs,), paired as in `states_many`, for the price of one pass.

        The cue for the answer stands behind the query, so a causal model has read the query in just the same
        way before it: only where a tokenizer merges the two are there two passes.
        """
        asked = self._asked(queries)
        suffixes = [self._tokens.suffix(query) for query in queries]
        if any(suffix[: len(ids)] != ids for suffix, ids in zip(suffixes, asked, strict=True)):
            return self.margins(self.states_many(queries, prefixes)), self.likelihoods_many(queries, prefixes)
        self._require_all_layers(prefixes)
        with torch.inference_mode():
            states = self._extend(suffixes, prefixes, last_only=False)
            last = torch.tensor([len(suffix) - 1 for suffix in suffixes]).expand(len(states))
            answers = states[torch.arange(len(states)), last].float()
            likelihoods = self._mean_logs(asked, states)
        return self.margins(answers), likelihoods.clone()

    def attention(self, query: str, prefixes: PrefixBatch) -> Attention:
        """What one query's last position attends to over K pages, in every layer held, with its states."""
        suffix = torch.tensor([self._tokens.suffix(query)])
        layers: list[Tensor] = []
        with torch.inference_mode():
            hidden = self._embed(suffix.to(self.device))
            lengths = torch.tensor([suffix.shape[1]])
            states = self._decoder.extend(hidden, lengths, prefixes, attention=layers)
        page = int(prefixes.lengths.max())
        weights = torch.stack(layers).clone()
        return Attention(states.float().clone(), weights[..., :page], weights[..., page:])

    def regions(self, grid: tuple[int, int], aspect: float) -> Regions:
        """Where the visual positions of a grid lie on a page whose width is `aspect` times its height."""
        return cells(*grid)

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

    def full_margins(self, query: str, pages: Sequence[Content]) -> Tensor:
        """Margins (pages,) at full depth on the uncompressed pages: the target of eq. 6."""
        encoded = self.encode(pages, exit_layer=self.geometry.layers)
        return self.pair_margins([query] * len(encoded), encoded)

    def full_likelihoods(self, query: str, pages: Sequence[Content]) -> Tensor:
        """Likelihoods (pages,) on the uncompressed pages: the target for a model not tuned to answer."""
        encoded = self.encode(pages, exit_layer=self.geometry.layers)
        return self.likelihoods(query, DensePrefixes(encoded))

    def pair_margins(self, queries: Sequence[str], pages: Sequence[Prefix]) -> Tensor:
        """Margins (pairs,) of query i over page i, uncompressed and encoded to full depth (eq. 6)."""
        self._require_full_depth(pages)
        if len(queries) != len(pages):
            raise BackboneError(f"{len(queries)} queries for {len(pages)} pages; wanted one each")
        return self.margins(self.states_many(queries, DensePrefixes(pages)))

    def pair_targets(self, queries: Sequence[str], pages: Sequence[Prefix]) -> tuple[Tensor, Tensor]:
        """Margins and likelihoods (pairs,) of query i over page i, as in `pair_margins`."""
        self._require_full_depth(pages)
        if len(queries) != len(pages):
            raise BackboneError(f"{len(queries)} queries for {len(pages)} pages; wanted one each")
        return self.targets_many(queries, DensePrefixes(pages))

    def write_queries(self, pages: Sequence[Prefix], *, max_tokens: int = 24) -> list[str]:
        """The query the model itself would put below each page, encoded to full depth; greedy, one line.

        The instruction ends where a query is to follow, so the likeliest continuation is one. Empty where
        the model would not write any.
        """
        self._require_full_depth(pages)
        batch = DensePrefixes(pages)
        opening = self._tokens.asked("")
        written: list[list[int]] = [[] for _ in pages]
        open_rows = set(range(len(pages)))
        for _ in range(max_tokens):
            with torch.inference_mode():
                states = self._extend([[*opening, *tokens] for tokens in written], batch, last_only=True)
                likeliest = self._likeliest(states)
            for row in sorted(open_rows):
                text = self._tokens.continuation([*written[row], likeliest[row]])
                if text is None:
                    open_rows.discard(row)
                else:
                    written[row].append(likeliest[row])
            if not open_rows:
                break
        return [(self._tokens.continuation(tokens) or "").strip() for tokens in written]

    def weights_fingerprint(self) -> str:
        """Digest the weights: names, shapes, dtypes and an even sample of every tensor."""
        return fingerprint_weights(self._model)

    def prompt_fingerprint(self) -> str:
        """Digest the prompt and its answer tokens."""
        return fingerprint(self._tokens.describe())

    @abstractmethod
    def content(self, page: Page) -> Content:
        """What of a page this family reads."""

    @abstractmethod
    def processor_fingerprint(self) -> str:
        """Digest everything that turns a page into tokens."""

    @property
    @abstractmethod
    def page_budget(self) -> str:
        """How much of a page is read, in the words a lineage records."""

    @property
    @abstractmethod
    def max_pixels(self) -> int:
        """Pixel budget of a page image: a larger one is scaled down, so rendering more is waste."""

    @abstractmethod
    def _cut(self) -> Decoder:
        """Name the parts of the text model's layers."""

    @abstractmethod
    def _text_model(self) -> PreTrainedModel:
        """Return the module with `embed_tokens`, `layers`, `norm` and `rotary_emb`."""

    @abstractmethod
    def _read(self, pages: Sequence[Any]) -> list[PageTokens]:
        """Tokens, features and positions of pages, one by one."""

    def _asked(self, queries: Sequence[str]) -> list[list[int]]:
        asked = [self._tokens.asked(query) for query in queries]
        if any(len(ids) < 2 for ids in asked):
            raise BackboneError("an empty query has no likelihood; wanted at least one token")
        return asked

    def _mean_logs(self, asked: Sequence[list[int]], states: Tensor) -> Tensor:
        """Mean log probability (pairs,) of the tokens asked, from states (pairs, positions, width).

        The state at a position predicts the token behind it; positions behind the last token do not count.
        """
        unembedding = self._model.get_output_embeddings().weight.float()
        means = []
        for pair, hidden in enumerate(states):  # one at a time: a vocabulary is wide
            wanted = torch.tensor(asked[pair if len(asked) > 1 else 0][1:], device=self.device)
            logits = self._text_model().norm(hidden[: len(wanted)]).float() @ unembedding.t()
            means.append((logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(dim=1)).mean())
        return torch.stack(means)

    def _extend(
        self,
        suffixes: list[list[int]],
        prefixes: PrefixBatch,
        *,
        last_only: bool,
        owners: Tensor | None = None,
    ) -> Tensor:
        """States at each suffix's last position (pairs, width), or at all (pairs, positions, width)."""
        pages = len(prefixes.lengths)
        if owners is None and (not suffixes or (len(suffixes) != pages and 1 not in (len(suffixes), pages))):
            raise BackboneError(
                f"{len(suffixes)} queries over {pages} pages; wanted as many of one as of the other, or one"
            )
        ids = pad_sequence([torch.tensor(suffix) for suffix in suffixes], batch_first=True)
        lengths = torch.tensor([len(suffix) for suffix in suffixes]) if last_only else None
        return self._decoder.extend(self._embed(ids.to(self.device)), lengths, prefixes, owners=owners)

    def _likeliest(self, states: Tensor) -> list[int]:
        """The most likely next token after each state (rows, width) of the last layer."""
        unembedding = self._model.get_output_embeddings().weight
        logits = self._text_model().norm(states) @ unembedding.t()
        tokens: list[int] = logits.argmax(dim=-1).tolist()
        return tokens

    def _require_all_layers(self, prefixes: PrefixBatch) -> None:
        if prefixes.exit_layer != self.geometry.layers:
            raise BackboneError(
                f"likelihoods over pages read to layer {prefixes.exit_layer} of {self.geometry.layers}; "
                "encode them to full depth"
            )

    def _require_full_depth(self, pages: Sequence[Prefix]) -> None:
        short = [page.keys.shape[0] for page in pages if page.keys.shape[0] != self.geometry.layers]
        if short or not pages:
            found = f"pages of {short[0]} layers" if short else "no pages"
            raise BackboneError(f"{found}; wanted pages encoded to all {self.geometry.layers} layers")

    def _embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self._text_model().embed_tokens(ids)
        return embedded


def _mean_of_query(states: Tensor, asked: Sequence[Sequence[int]]) -> Tensor:
    """Average (pairs, positions, width) over the positions of each query's tokens, float32.

    `asked` are the tokens from the one before the query on; a query without tokens is read at that one.
    """
    lengths = torch.tensor([len(ids) for ids in asked], device=states.device)
    place = torch.arange(states.shape[1], device=states.device)
    own = (place < lengths[:, None]) & ((place > 0) | (lengths[:, None] == 1))
    weights = (own / own.sum(dim=1, keepdim=True)).expand(len(states), -1)
    return torch.einsum("pnw,pn->pw", states.float(), weights)

"""The retrievers `mini-colqwen` and `mini-colqwen-small`, and their lesson: finding pages by MaxSim.

They are of transformers' own `ColQwen2ForRetrieval`, over a Qwen2.5-VL with a shallow decoder, with
`mini-qwen`'s vision tower. Pages are read perfectly, as in the matching lesson. A step has pages of two
documents: those of the same one share most of their words.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import sqrt
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.init import normal_
from transformers import ColQwen2Config, ColQwen2ForRetrieval
from transformers.models.colqwen2.processing_colqwen2 import ColQwen2Processor

from miniature.training.designs import WIDTH, TrainableModel, make_mini_qwen
from miniature.training.initial_weights import EMBEDDING_SCALE, start_feed_forward
from miniature.training.lessons import TrainingLesson, read_checkpoint
from miniature.training.matching_lesson import NOISE, cell_words
from miniature.training.packing import CELLS
from miniature.training.reading_lesson import cell_tokens
from miniature.training.training_pages import (
    PAGES_PER_THEME,
    TrainingQuestion,
    training_pages,
    training_queries,
)
from miniature.world import COLUMNS, ROWS, PlannedPage

VISION, EMBEDDINGS = "model.visual.", "model.language_model.embed_tokens."
PREFIX = "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|><|im_end|>"
"""The page part of a prompt; there is nothing to describe for a model that does not speak."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainableRetriever:
    """A retriever before or during training, beside the model whose vision tower and words it has."""

    model: ColQwen2ForRetrieval
    processor: ColQwen2Processor
    vision_model: TrainableModel


def make_mini_colqwen(seed: int, vision_checkpoint: Path, *, layers: int, dim: int) -> TrainableRetriever:
    """A retriever with its first weights; `vision_checkpoint` is of a `mini-qwen` that can read."""
    vision_model = make_mini_qwen(seed, layers=layers)
    torch.manual_seed(seed)
    config = ColQwen2Config(vlm_config=vision_model.model.config, embedding_dim=dim)
    model = ColQwen2ForRetrieval(config)
    weights = {
        name.replace("model.", "vlm.", 1): weight
        for name, weight in read_checkpoint(vision_checkpoint).items()
        if name.startswith((VISION, EMBEDDINGS))
    }
    model.load_state_dict(weights, strict=False)
    with torch.no_grad():
        normal_(model.embedding_proj_layer.weight, std=1 / sqrt(WIDTH))
        for layer in model.vlm.language_model.layers:
            normal_(layer.self_attn.v_proj.weight, std=1 / sqrt(WIDTH))
            normal_(layer.self_attn.o_proj.weight, std=0.005)
            mlp = layer.mlp
            start_feed_forward(mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
    processor = ColQwen2Processor(
        vision_model.image_processor,
        vision_model.tokenizer,
        visual_prompt_prefix=PREFIX,
        query_prefix="Query: ",
    )
    return TrainableRetriever(model, processor, vision_model)


KINDS = ("binding", "chart", "topic", "negation")
TEMPERATURE = 0.5
"""Of a sum over the question's vectors of a cosine each."""


class RetrievalLesson(TrainingLesson):
    """Teach the shallow decoder and the projection; vision tower and embeddings stay as they are."""

    name = "retrieval"
    rate = 5e-4

    def __init__(self, trainable: TrainableRetriever, *, seed: int, steps: int, themes: int = 2) -> None:
        super().__init__(trainable.model, seed=seed, steps=steps)
        self._retriever, self._processor, self._themes = trainable.model, trainable.processor, themes
        self._words = cell_tokens(trainable.vision_model)
        image = trainable.processor.visual_prompt_prefix.replace(
            trainable.processor.image_token, trainable.processor.image_token * CELLS
        )
        self._page_ids = torch.tensor(trainable.vision_model.tokenizer(image)["input_ids"])
        self._positions, _ = trainable.model.vlm.get_rope_index(
            self._page_ids[None],
            mm_token_type_ids=(self._page_ids == self._words[0])[None].int(),
            image_grid_thw=torch.tensor([[1, 2 * ROWS, 2 * COLUMNS]]),
        )

    def trained_parameters(self) -> Iterable[Parameter]:
        """The decoder's layers, its norm and the projection."""
        text = self._retriever.vlm.language_model
        projection = self._retriever.embedding_proj_layer
        return [*text.layers.parameters(), *text.norm.parameters(), *projection.parameters()]

    def step(self, number: int) -> tuple[Tensor, Mapping[str, float]]:
        """Find the pages of some questions among those of a few documents."""
        chance = Random(f"retrieval {self.seed} {number}")
        pages = [
            page
            for _ in range(self._themes)
            for page in islice(training_pages(chance.randrange(1 << 40)), PAGES_PER_THEME)
        ]
        questions = _questions(pages, chance)
        grades = torch.tensor([[float(question.grade(page)) for page in pages] for question in questions])
        scores = max_sim(self.embed_queries([each.text for each in questions]), self.embed(pages, number))
        aims = grades.square() / grades.square().sum(dim=1, keepdim=True)
        loss = -(aims * (scores / TEMPERATURE).log_softmax(dim=1)).sum(dim=1).mean()
        best = grades.gather(1, scores.argmax(dim=1, keepdim=True))[:, 0]
        return loss, {"first": float((best == grades.max(dim=1).values).float().mean())}

    def embed(self, pages: list[PlannedPage], number: int) -> Tensor:
        """(pages, positions, dim): the vectors of pages that were read perfectly, but for some noise."""
        table = self._retriever.vlm.language_model.embed_tokens
        features = table(self._words[cell_words(pages)])
        chance = self.generator(number)
        features = features + NOISE * EMBEDDING_SCALE * torch.randn(features.shape, generator=chance)
        hidden = table(self._page_ids).repeat(len(pages), 1, 1)
        hidden[:, self._page_ids == self._words[0]] = features
        everything = torch.ones(hidden.shape[:2], dtype=torch.long)
        positions = self._positions.expand(-1, len(pages), -1)
        vectors: Tensor = self._retriever(
            inputs_embeds=hidden, attention_mask=everything, position_ids=positions
        ).embeddings
        return vectors

    def embed_queries(self, texts: list[str]) -> Tensor:
        """(questions, tokens, dim), zero where a question has ended."""
        batch = self._processor(text=texts, return_tensors="pt", padding=True)
        vectors: Tensor = self._retriever(**batch).embeddings
        return vectors


def max_sim(queries: Tensor, pages: Tensor) -> Tensor:
    """(questions, pages): for each vector of a question its best match on the page, summed."""
    return torch.einsum("qid,pjd->qpij", queries, pages).amax(dim=3).sum(dim=2)


def _questions(pages: list[PlannedPage], chance: Random) -> list[TrainingQuestion]:
    """One question of each page that one page at least answers."""
    chosen: dict[TrainingQuestion, None] = {}
    for page in pages:
        answered = [each.question for each in training_queries(page, chance, kinds=KINDS) if each.grade > 0]
        if answered:
            chosen[chance.choice(answered)] = None
    return list(chosen)

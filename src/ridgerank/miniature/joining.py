"""Third lesson: images through the vision tower into the decoder, both learning.

Some cells are hidden from the questions, so that what is read spreads over neighbouring positions: a stored
page keeps only a part of them.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLForConditionalGeneration

from ridgerank.miniature.lessons import Lesson
from ridgerank.miniature.matching import accuracies, answer_loss, asked_pages
from ridgerank.miniature.packing import CELLS, Packer
from ridgerank.miniature.reading import Reader

SHOWN = (1 / 3, 1.0)
"""Smallest and largest share of a page's cells that questions may look at."""
READING_SHARE = 0.3
"""Of the loss: reading goes on, so that words stay words."""


class JoinedLesson(Lesson):
    """Teach everything but the embeddings."""

    name = "joined"
    rate = 4e-4

    def __init__(
        self,
        model: Qwen2_5_VLForConditionalGeneration,
        tokenizer: PreTrainedTokenizerFast,
        *,
        seed: int,
        steps: int,
        pages: int = 4,
    ) -> None:
        super().__init__(model, seed=seed, steps=steps)
        self._packer, self._reader, self._pages = Packer(model, tokenizer), Reader(model, tokenizer), pages

    def taught(self) -> Iterable[Parameter]:
        """All weights but the embeddings."""
        return [weight for name, weight in self.model.named_parameters() if "embed_tokens" not in name]

    def step(self, number: int) -> tuple[Tensor, Mapping[str, float]]:
        """Read some pages and answer questions about them."""
        # Other pages than those of the matching lesson.
        pages, asked = asked_pages(self.seed + 1, number, self._pages)
        features = self._reader.features(pages)
        reading = self._reader.grade(features, pages)
        packed = self._packer.pack(asked)
        seen = seen_cells(len(pages), CELLS, SHOWN, self.generator(number))
        everything = torch.arange(CELLS).expand(len(pages), -1)
        logits = self._packer.logits(features, packed, everything, seen)
        answers = self._packer.answers
        loss = answer_loss(logits, packed, answers) + READING_SHARE * reading.loss
        return loss, {"words": reading.words, **accuracies(logits, packed, answers)}


def seen_cells(pages: int, cells: int, share: tuple[float, float], generator: torch.Generator) -> Tensor:
    """(pages, cells) bool: a random subset for the questions, of a share drawn for each page."""
    low, high = share
    shares = low + (high - low) * torch.rand(pages, 1, generator=generator)
    return torch.rand(pages, cells, generator=generator) < shares

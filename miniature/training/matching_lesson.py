"""Second lesson: the decoder learns to match questions with pages that were read perfectly.

A cell holds the embedding of its word, with a little noise. Empty cells away from words are left out: what
they cost is time.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from random import Random

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F  # noqa: N812 (its usual name)

from miniature.questions import ANSWERS, NOT
from miniature.training.designs import TrainableModel
from miniature.training.initial_weights import EMBEDDING_SCALE
from miniature.training.lessons import TrainingLesson
from miniature.training.packing import CELLS, Answered, Packed, Packer
from miniature.training.reading_lesson import cell_tokens
from miniature.training.training_pages import KINDS, Example, training_pages, training_queries, word_grid
from miniature.world import PlannedPage

KEPT_CELLS = 96
"""Cells of a symbolic page: those with words, those behind words, and some others."""
NOISE = 0.4
"""Of a cell's embedding, as a share of its size."""
TARGETS = (0.0, 0.4, 1.0)
"""Probability of yes, by grade."""


def pages_with_questions(
    seed: int, step: int, count: int, *, kinds: Sequence[str] = KINDS, rounds: int = 1
) -> tuple[list[PlannedPage], list[list[Example]]]:
    """Pages of a step with their questions; four in a row share a theme."""
    generator = Random(f"matching {seed} {step}")
    pages: list[PlannedPage] = []
    while len(pages) < count:
        pages += islice(training_pages(generator.randrange(1 << 40)), 4)
    examples_by_page = []
    for page in pages[:count]:
        examples = {
            each.question: each
            for _ in range(rounds)
            for each in training_queries(page, generator, kinds=kinds)
        }
        examples_by_page.append(list(examples.values()))
    return pages[:count], examples_by_page


def cell_words(pages: Sequence[PlannedPage]) -> Tensor:
    """(pages, 192) number of the word in each cell."""
    return torch.from_numpy(np.stack([word_grid(page).reshape(-1) for page in pages]))


def choose_cells(cells: Tensor, generator: torch.Generator) -> Tensor:
    """(pages, 96) cells to keep, in order: words first, then what stands behind them, then any."""
    worth = torch.rand(cells.shape, generator=generator)
    filled = cells > 0
    behind = F.pad(filled, (2, 0))[:, :-2] | F.pad(filled, (1, 0))[:, :-1]
    worth += 2.0 * filled + 1.0 * behind
    return worth.topk(KEPT_CELLS, dim=1).indices.sort(dim=1).values


def answer_loss(logits: Tensor, packed: Packed, answers: tuple[int, int]) -> Tensor:
    """Cross entropy of the answer token; what answers partly is somewhat less likely than not."""
    said = logits.log_softmax(-1)
    target = torch.tensor(TARGETS)[packed.grades]
    yes, no = answers
    return -(target * said[:, yes] + (1 - target) * said[:, no]).mean()


def accuracies(logits: Tensor, packed: Packed, answers: tuple[int, int]) -> dict[str, float]:
    """By kind: how often the margin of an answer is above that of a page that only looks like one.

    Chance is a half. What answers partly is left out, and so is what lacks a word: counting words would do.
    """
    margins = (logits[:, answers[0]] - logits[:, answers[1]]).detach()
    kinds = np.array(packed.kinds)
    shares = {}
    for kind in KINDS:
        of_kind = torch.from_numpy(kinds == kind)
        # A negation fails by a word that is there, a single word by not being there.
        tempting = packed.hard if kind not in ("word", "negation") else torch.ones_like(packed.hard)
        right = margins[of_kind & (packed.grades == ANSWERS)]
        wrong = margins[of_kind & (packed.grades == NOT) & tempting]
        if len(right) and len(wrong):
            shares[kind] = float((right[:, None] > wrong).float().mean())
    return shares


class MatchingLesson(TrainingLesson):
    """Teach the decoder alone, on embedded words; the embeddings stay, for the vision tower aims at them."""

    name = "matching"
    rate = 2e-4

    def __init__(self, trainable: TrainableModel, *, seed: int, steps: int, pages: int = 8) -> None:
        super().__init__(trainable.model, seed=seed, steps=steps)
        self._packer, self._tokens, self._pages = Packer(trainable), cell_tokens(trainable), pages

    def trained_parameters(self) -> Iterable[Parameter]:
        """The decoder's layers, its norm and the unembedding."""
        text = self.model.model.language_model
        return [*text.layers.parameters(), *text.norm.parameters(), *self.model.lm_head.parameters()]

    def step(self, number: int) -> tuple[Tensor, Mapping[str, float]]:
        """Answer some questions."""
        generator = self.generator(number)
        pages, examples_by_page = pages_with_questions(self.seed, number, self._pages)
        cells = cell_words(pages)
        features = self.model.model.language_model.embed_tokens.weight[self._tokens][cells]
        features = features + NOISE * EMBEDDING_SCALE * torch.randn(features.shape, generator=generator)
        seen = self.seen(len(pages), generator)
        packed = self._packer.pack(examples_by_page)
        answered = self._packer.answer(features, packed, choose_cells(cells, generator), seen)
        return self.loss(answered, packed), accuracies(answered.logits, packed, self.answers)

    @property
    def answers(self) -> tuple[int, int]:
        """Tokens of yes and no."""
        return self._packer.answers

    def loss(self, answered: Answered, packed: Packed) -> Tensor:
        """What a wrong answer costs."""
        return answer_loss(answered.logits, packed, self.answers)

    def seen(self, pages: int, chance: torch.Generator) -> Tensor:
        """(pages, 192) bool: every cell may be looked at."""
        return torch.ones(pages, CELLS, dtype=torch.bool)


SHOWN = (1 / 3, 1.0)
"""Smallest and largest share of a page's cells that questions may look at."""
STRIDE = 3
"""Every other page shows one cell in three, evenly, as a store keeps them."""


class KeepingLesson(MatchingLesson):
    """Go on with the decoder alone, on embedded words."""

    name = "keeping"

    def seen(self, pages: int, chance: torch.Generator) -> Tensor:
        """Hide most cells of most pages."""
        return some_cells(pages, chance)


def some_cells(pages: int, chance: torch.Generator) -> Tensor:
    """(pages, 192) bool: in turn a random subset of the cells, and an even one."""
    seen = seen_cells(pages, CELLS, SHOWN, chance)
    seen[1::2] = even_cells(pages, CELLS, STRIDE, chance)[1::2]
    return seen


def seen_cells(pages: int, cells: int, share: tuple[float, float], generator: torch.Generator) -> Tensor:
    """(pages, cells) bool: a random subset for the questions, of a share drawn for each page."""
    low, high = share
    shares = low + (high - low) * torch.rand(pages, 1, generator=generator)
    return torch.rand(pages, cells, generator=generator) < shares


def even_cells(pages: int, cells: int, stride: int, generator: torch.Generator) -> Tensor:
    """(pages, cells) bool: one cell in `stride`, from a first one drawn for each page."""
    first = torch.randint(stride, (pages, 1), generator=generator)
    return torch.arange(cells) % stride == first


SILENCE = 0.2
"""Of the loss: the mean square of the early margin, over that of the final one."""


class WordingLesson(KeepingLesson):
    """Go on with the decoder, and keep it from speaking early."""

    name = "wording"

    def loss(self, answered: Answered, packed: Packed) -> Tensor:
        """What a wrong answer costs, and an early one."""
        early, final = (self._margins(logits) for logits in (answered.lens, answered.logits))
        spoken = early.square().mean() / final.detach().square().mean()
        return super().loss(answered, packed) + SILENCE * spoken

    def _margins(self, logits: Tensor) -> Tensor:
        yes, no = self.answers
        return logits[:, yes] - logits[:, no]

"""First lesson: the vision tower learns to read, every cell of every page at once.

A visual token should be the decoder's embedding of the word that covers its cell, and that of the image token
where there is none. The decoder can then be taught on words alone, at the same time, and the two joined.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from random import Random

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F  # noqa: N812 (its usual name)

from miniature.layouts import width_cells
from miniature.training.designs import WIDTH, TrainableModel, render
from miniature.training.initial_weights import EMBEDDING_SCALE
from miniature.training.lessons import TrainingLesson
from miniature.training.training_pages import SCANNED, training_pages, word_grid
from miniature.vocabulary import (
    ENTITIES,
    FIELDS,
    FILLER,
    MEASURES,
    NUMBERS,
    PAGE_WORDS,
    SUBJECTS,
    YEARS,
    Split,
    split_of,
)
from miniature.world import COLUMNS, ROWS, Mark, PlacedWord, PlannedPage, Role, draw_style

CERTAINTY = 12.0
"""Logit of a word whose embedding is met exactly."""
ROLES: tuple[tuple[Sequence[str], Role, int], ...] = (
    (ENTITIES, "name", 6),
    (ENTITIES, "note", 2),
    (MEASURES, "body", 4),
    (MEASURES, "note", 1),
    (YEARS, "heading", 2),
    (YEARS, "body", 2),
    ((*FIELDS, *SUBJECTS), "note", 4),
    (FILLER, "note", 3),
    (NUMBERS, "body", 3),
)
"""Which words stand where on real pages, and how often they are practised."""


@dataclass(frozen=True, slots=True)
class CellReading:
    """How well cells were read."""

    loss: Tensor
    words: float
    """Share of the cells with a word that were named."""
    blanks: float
    """Share of the cells without one that were seen as empty."""


def cell_tokens(trainable: TrainableModel) -> Tensor:
    """(words + 1,) the token of each page word, by its number; the image token for a blank cell."""
    words = [trainable.backbone.image_token, *PAGE_WORDS]
    return torch.tensor(trainable.tokenizer.convert_tokens_to_ids(words))


def practice_page(generator: Random) -> PlannedPage:
    """A page full of words that say nothing: three times as many to read as on a real one.

    As on a real page of training, no row holds two words that belong together in a corpus.
    """
    words: list[PlacedWord] = []
    marks: list[Mark] = []
    for row in range(ROWS):
        if generator.random() < 0.2:
            words += _fill(row, (*FIELDS, *SUBJECTS), "title", generator)
        else:
            kinds = generator.choices(ROLES, [weight for *_, weight in ROLES], k=2)
            words += _fill(row, *kinds[0][:2], generator, other=kinds[1][:2])
        if generator.random() < 0.3:
            marks.append(Mark("box", (22.0, row * 28.0 - 4, 320.0, row * 28.0 + 28), "tint"))
    style = draw_style(generator, scanned=SCANNED)
    return PlannedPage("practice", ("", ""), (), (), tuple(words), tuple(marks), style)


def _evaluation_partners() -> Mapping[str, frozenset[str]]:
    partners: dict[str, set[str]] = {}
    for first, second in (*product(ENTITIES, MEASURES), *product(FIELDS, SUBJECTS)):
        if split_of(first, second) is Split.EVALUATION:
            partners.setdefault(first, set()).add(second)
            partners.setdefault(second, set()).add(first)
    return {word: frozenset(others) for word, others in partners.items()}


EVALUATION_PARTNERS = _evaluation_partners()
"""Word → the words it belongs together with in a corpus: none of them may stand on its row."""


def _fill(
    row: int,
    kind: Sequence[str],
    role: Role,
    generator: Random,
    *,
    other: tuple[Sequence[str], Role] | None = None,
) -> list[PlacedWord]:
    """Words from left to right, each of one of two kinds, none beside a partner of evaluation."""
    kinds = [(kind, role), other or (kind, role)]
    placed: list[PlacedWord] = []
    barred: set[str] = set()
    column = generator.choice((1, 1, 2, 3))
    while True:
        # Of one kind nothing may be left; what stands on the row already may always stand there again.
        generator.shuffle(kinds)
        words, drawn = next(each for each in kinds if not barred.issuperset(each[0]))
        word = generator.choice([word for word in words if word not in barred])
        cells = width_cells(word, drawn)
        if column + cells > COLUMNS:
            return placed
        placed.append(PlacedWord(word, row, column, cells, drawn))
        barred |= EVALUATION_PARTNERS.get(word, frozenset())
        column += cells + (generator.random() < 0.15)


def reading_pages(seed: int, step: int, count: int) -> list[PlannedPage]:
    """Pages of a step: of four, three of practice and a real one."""
    generator = Random(f"reading {seed} {step}")
    real = list(islice(training_pages(generator.randrange(1 << 40)), count // 4))
    return [practice_page(generator) for _ in range(count - len(real))] + real


class CellReader:
    """Pages to features, on the way the backbone takes."""

    def __init__(self, trainable: TrainableModel) -> None:
        self._model = trainable.model
        self._processor = trainable.image_processor
        self._tokens = cell_tokens(trainable)

    def features(self, pages: Sequence[PlannedPage]) -> Tensor:
        """(pages, 192, width): what the vision tower puts at the visual positions."""
        batch = self._processor(images=render(pages), return_tensors="pt")
        output = self._model.model.get_image_features(batch["pixel_values"], batch["image_grid_thw"])
        return torch.stack(list(output.pooler_output))

    def grade(self, features: Tensor, pages: Sequence[PlannedPage]) -> CellReading:
        """Compare features with the embeddings of the words that are there."""
        cells = torch.from_numpy(np.stack([word_grid(page).reshape(-1) for page in pages]))
        table = self._model.model.language_model.embed_tokens.weight[self._tokens].detach()
        unit = EMBEDDING_SCALE**2 * WIDTH
        logits = features @ table.t() * (CERTAINTY / unit)
        named = F.cross_entropy(logits.flatten(0, 1), cells.flatten())
        missed = (features - table[cells]).square().mean() / EMBEDDING_SCALE**2
        right = logits.argmax(-1) == cells
        return CellReading(
            named + 0.3 * missed,
            float(right[cells > 0].float().mean()),
            float(right[cells == 0].float().mean()),
        )


class ReadingLesson(TrainingLesson):
    """Teach the vision tower alone."""

    name = "reading"
    rate = 2e-3

    def __init__(self, trainable: TrainableModel, *, seed: int, steps: int, pages: int = 8) -> None:
        super().__init__(trainable.model, seed=seed, steps=steps)
        self._reader, self._pages = CellReader(trainable), pages

    def trained_parameters(self) -> Iterable[Parameter]:
        """The vision tower with its merger."""
        parameters: Iterable[Parameter] = self.model.model.visual.parameters()
        return parameters

    def step(self, number: int) -> tuple[Tensor, Mapping[str, float]]:
        """Read some pages."""
        pages = reading_pages(self.seed, number, self._pages)
        reading = self._reader.grade(self._reader.features(pages), pages)
        return reading.loss, {"words": reading.words, "blanks": reading.blanks}

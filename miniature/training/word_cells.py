"""A page as the model sees it after perfect reading: for every cell the word that covers it."""

import numpy as np

from miniature.vocabulary import PAGE_WORDS
from miniature.world import COLUMNS, ROWS, PlannedPage
from ridgerank.ragged import Ints

WORD_IDS = {word: number for number, word in enumerate(PAGE_WORDS, start=1)}
"""Page word → its number; 0 is a cell without a word."""


def word_grid(page: PlannedPage) -> Ints:
    """(16, 12) the id of each cell's word, 0 where there is none."""
    grid = np.zeros((ROWS, COLUMNS), dtype=np.int64)
    for placed in page.words:
        grid[placed.row, placed.column : placed.column + placed.width_cells] = WORD_IDS[placed.word]
    return grid

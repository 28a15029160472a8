"""Many questions behind one page, in one sequence: each sees the page and itself, none sees another.

Tokens and positions are those of the backbone's prompt, so that what is learned here is what runs there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from miniature.training.designs import TrainableModel
from miniature.training.training_pages import Example
from miniature.world import COLUMNS, ROWS
from ridgerank.backbones.prompt import PromptTokens
from ridgerank.lineage import default_exit_layer

CELLS = ROWS * COLUMNS


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Questions of some pages, laid out behind them."""

    ids: Tensor
    """(pages, suffix positions)."""
    positions: Tensor
    """(pages, suffix positions): rotary position, the same on all axes."""
    question: Tensor
    """(pages, suffix positions): number of the question a token belongs to, -1 for padding."""
    answers: Tensor
    """(questions, 2): page and suffix position whose next token is the answer."""
    grades: Tensor
    """(questions,) 0, 1 or 2."""
    kinds: list[str]
    hard: Tensor
    """(questions,) whether all its words stand on the page."""


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """What the model would say to each question: (questions, vocabulary) each."""

    logits: Tensor
    lens: Tensor
    """The logit lens: what it would say if it ended at the exit layer."""


class Packer:
    """The prompt of one model, cut into page and question."""

    def __init__(self, trainable: TrainableModel) -> None:
        self._model = model = trainable.model
        self._tokens = PromptTokens(trainable.backbone.prompt, trainable.tokenizer.backend_tokenizer)
        yes, no = self._tokens.answers
        self.answers = yes, no
        self._exit_layer = default_exit_layer(model.config.text_config.num_hidden_layers)
        self.page_ids = torch.tensor(self._tokens.image_page(trainable.backbone.image_token * CELLS))
        self.visual = self.page_ids == model.config.image_token_id
        positions, _ = model.model.get_rope_index(
            self.page_ids[None],
            mm_token_type_ids=self.visual[None].int(),
            image_grid_thw=torch.tensor([[1, 2 * ROWS, 2 * COLUMNS]]),
        )
        self.page_positions = positions[:, 0]
        """(3, page positions)."""
        self._next = int(self.page_positions.max()) + 1

    def pack(self, examples_by_page: Sequence[Sequence[Example]]) -> Packed:
        """Lay each page's questions behind each other."""
        suffixes = [[self._tokens.suffix(each.question.text) for each in page] for page in examples_by_page]
        length = max(sum(map(len, page)) for page in suffixes)
        ids = torch.zeros(len(examples_by_page), length, dtype=torch.long)
        positions, question = ids.clone(), torch.full_like(ids, -1)
        answers = []
        for row, page in enumerate(suffixes):
            start = 0
            for number, suffix in enumerate(page):
                end = start + len(suffix)
                ids[row, start:end] = torch.tensor(suffix)
                positions[row, start:end] = self._next + torch.arange(len(suffix))
                question[row, start:end] = number
                answers.append((row, end - 1))
                start = end
        flat = [each for page in examples_by_page for each in page]
        return Packed(
            ids,
            positions,
            question,
            torch.tensor(answers),
            torch.tensor([each.grade for each in flat]),
            [each.question.kind for each in flat],
            torch.tensor([each.is_hard for each in flat]),
        )

    def answer(self, features: Tensor, packed: Packed, kept: Tensor, seen: Tensor) -> Answered:
        """Answer every question.

        `features` (pages, 192, width) stand at the visual positions. `kept` (pages, n) are the cells that
        exist at all, in order; `seen` (pages, 192) those that questions may look at.
        """
        text = self._model.model.language_model
        pages, cells = kept.shape
        first = int(self.visual.int().argmax())
        where = torch.cat(  # positions of the page part that exist, (pages, page positions)
            [
                torch.arange(first).expand(pages, -1),
                first + kept,
                torch.arange(first + CELLS, len(self.page_ids)).expand(pages, -1),
            ],
            dim=1,
        )
        hidden = text.embed_tokens(self.page_ids[where])
        chosen = features.gather(1, kept[..., None].expand(-1, -1, features.shape[-1]))
        hidden = torch.cat([hidden[:, :first], chosen, hidden[:, first + cells :]], dim=1)
        hidden = torch.cat([hidden, text.embed_tokens(packed.ids)], dim=1)
        positions = torch.cat([self.page_positions[:, where], packed.positions.expand(3, -1, -1)], dim=-1)
        output = text(
            inputs_embeds=hidden,
            position_ids=positions,
            attention_mask=_mask(packed.question, seen.gather(1, kept), first, where.shape[1]),
            use_cache=False,
            output_hidden_states=True,
        )
        page, position = packed.answers.unbind(1)
        position = where.shape[1] + position
        early = text.norm(output.hidden_states[self._exit_layer][page, position])
        unembed = self._model.lm_head
        return Answered(unembed(output.last_hidden_state[page, position]), unembed(early))


def _mask(question: Tensor, seen: Tensor, first: int, page: int) -> Tensor:
    """(pages, 1, length, length) bool: which position sees which."""
    pages, suffix = question.shape
    length = page + suffix
    mask = torch.ones(length, length, dtype=torch.bool).tril().repeat(pages, 1, 1)
    mask[:, page:, page:] &= question[:, :, None] == question[:, None, :]
    mask[:, page:, first : first + seen.shape[1]] &= seen[:, None, :]
    return mask[:, None]

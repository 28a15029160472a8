"""Fourth lesson: the answer is put into words in the last layers only.

A large model knows before it says: at three quarters of its depth the state holds the answer, but not in the
direction of the answer's words, and so a fitted readout beats the logit lens. A small model left alone speaks
from the start. Here whatever the lens would say at the exit layer costs.
"""

from torch import Tensor

from miniature.training.keeping_lesson import KeepingLesson
from miniature.training.packing import Answered, Packed

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

"""How a late interaction model is spoken to: the words around a page image and around a query.

They are part of the weights in all but name: a model trained to read `Query: ` before a query finds less
without it. This module knows no model.
"""

from dataclasses import asdict, dataclass
from typing import Any

from ridgerank.errors import RetrieverError


@dataclass(frozen=True, slots=True)
class EncoderPrompt:
    """The words around a page and around a query."""

    page_prompt: str
    """What a page is to the model, the image token standing once for the image."""
    image_token: str
    image_token_id: int
    query_prefix: str
    """Plain text before the query."""
    after_query: str
    """What follows the query: tokens that say nothing and give the model room to think."""
    before_query: str = ""
    """Control tokens before the prefix, if any."""

    def __post_init__(self) -> None:
        if self.page_prompt.count(self.image_token) != 1:
            raise RetrieverError(
                f"the page prompt {self.page_prompt!r} holds the image token {self.image_token!r} "
                f"{self.page_prompt.count(self.image_token)} times, wanted once; the tokenizer and the "
                "processor settings of this folder do not belong together"
            )

    def page(self, visual_positions: int) -> str:
        """Word a page with so many visual positions."""
        return self.page_prompt.replace(self.image_token, self.image_token * visual_positions)

    def describe(self) -> dict[str, Any]:
        """Everything that decides the tokens, for a fingerprint."""
        return asdict(self)

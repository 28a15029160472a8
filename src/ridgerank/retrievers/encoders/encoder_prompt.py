"""The prompts of a late interaction model: the words around a page image and around a query.

They belong to the weights: a model trained with `Query: ` before a query finds less without it. This module
knows no model.
"""

from dataclasses import asdict, dataclass
from typing import Any

from ridgerank.errors import RetrieverError


@dataclass(frozen=True, slots=True)
class EncoderPrompt:
    """The words around a page and around a query."""

    page_prompt: str
    """The prompt of a page, with the image token once, for the image."""
    image_token: str
    image_token_id: int
    query_prefix: str
    """Plain text before the query."""
    after_query: str
    """Follows the query: filler tokens whose vectors expand the query."""
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
        """The prompt of a page with this number of visual positions."""
        return self.page_prompt.replace(self.image_token, self.image_token * visual_positions)

    def describe(self) -> dict[str, Any]:
        """Everything that decides the tokens, for a fingerprint."""
        return asdict(self)

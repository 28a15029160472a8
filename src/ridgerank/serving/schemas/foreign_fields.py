"""Fields of other servers that mean nothing for stored pages: accepted, with a warning that says so."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from ridgerank.serving.schemas.shared_schemas import Name, RequestModel, Text

Settings = dict[Name, Any]


class ForeignFields(RequestModel):
    """What Cohere, Jina, vLLM, TEI and infinity take besides queries and documents."""

    max_tokens_per_doc: int | None = None
    max_tokens_per_query: int | None = None
    max_chunks_per_doc: int | None = Field(default=None, ge=1)
    rank_fields: list[Name] | None = Field(default=None, max_length=64)
    priority: int | None = None
    truncate: bool | None = None
    truncation: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right"] | None = None
    truncation_side: Literal["left", "right"] | None = None
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    max_doc_length: int | None = Field(default=None, ge=1)
    max_query_length: int | None = Field(default=None, ge=1)
    instruction: Text | None = None
    chat_template_kwargs: Settings | None = None
    mm_processor_kwargs: Settings | None = None
    cache_salt: Name | None = None
    return_embeddings: Literal[False] | None = None
    user: Name | None = None

    @field_validator("max_tokens_per_doc", "max_tokens_per_query", mode="after")
    @classmethod
    def _check_tokens(cls, tokens: int | None, info: ValidationInfo) -> int | None:
        if tokens is not None and tokens < 0:
            raise ValueError(f"{info.field_name} must be a non-negative integer; 0 means no limit")
        return tokens

    def unused_fields(self) -> list[str]:
        """The names of the fields above that the request has."""
        return [name for name in ForeignFields.model_fields if getattr(self, name) is not None]

"""Every error's shape."""

from pydantic import Field

from ridgerank.serving.schemas.shared_schemas import ResponseModel


class FieldError(ResponseModel):
    """What is wrong with one field of a request."""

    field: str
    message: str


class ErrorResponse(ResponseModel):
    """Every error looks like this."""

    message: str = Field(description="What was found, what was wanted, what to do.")
    code: str = Field(description="One word a program can act on.", examples=["page_not_found"])
    fields: list[FieldError] = Field(default=[])

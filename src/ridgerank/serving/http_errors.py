"""What a caller can be told instead of an answer: a status, one word for programs, a line for people."""

from ridgerank.errors import BackboneError, DocumentError, QueryError, RidgeRankError, ScoreError


class Refusal(Exception):  # noqa: N818 (reads as the fact it states)
    """A request that is not answered as asked."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        """Seconds after which it is worth another try."""


def overloaded(admitted: int, retry_after: int) -> Refusal:
    """The bound on requests is reached."""
    return Refusal(
        429,
        "overloaded",
        f"{admitted} requests are being worked on, all this server takes; try again in {retry_after} s",
        retry_after=retry_after,
    )


def too_late(seconds: float, *, own: bool) -> Refusal:
    """A deadline has passed: the request's own, or the server's."""
    if own:
        return Refusal(
            408, "deadline_passed", f"no answer within the {1000 * seconds:.0f} ms the request allowed"
        )
    return Refusal(503, "deadline_passed", f"no answer within {seconds:g} s; try again", retry_after=1)


def closing() -> Refusal:
    """The server finishes what it has and takes nothing new."""
    return Refusal(503, "shutting_down", "the server is shutting down; ask another one", retry_after=5)


def no_such_page(name: str) -> Refusal:
    """A page the store does not have."""
    return Refusal(404, "page_not_found", f"no page {_short(name)!r} in the store; name one that is indexed")


def refusal_of(error: RidgeRankError, *, store_uri: str) -> Refusal:
    """What the library refused, in the API's words; where the store lies stays on the server."""
    codes: dict[type[RidgeRankError], str] = {
        QueryError: "bad_query",
        ScoreError: "bad_scores",
        DocumentError: "bad_document",
        BackboneError: "not_possible",
    }
    message = str(error).replace(store_uri, "this server")
    return Refusal(422, codes.get(type(error), "refused"), message)


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"

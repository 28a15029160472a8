"""A shallow pass that is opened when the first query needs it: results on disk need no model."""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ridgerank.scoring.shallow import ShallowPass


class LazyShallowPass:
    """Opens a model over its store on first use, and closes the store if it was opened."""

    def __init__(self, open_pass: Callable[[], "ShallowPass"]) -> None:
        self._open_pass = open_pass
        self._opened: ShallowPass | None = None

    def get(self) -> "ShallowPass":
        """The pass, the same one every time."""
        if self._opened is None:
            self._opened = self._open_pass()
        return self._opened

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.store.close()

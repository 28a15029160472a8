"""LangChain's own tests of a retriever, run on ours."""

from typing import Any, ClassVar

import pytest

from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY

standard = pytest.importorskip(
    "langchain_tests.integration_tests", reason="the [adapters-test] extra is not installed"
)

from ridgerank.integrations.langchain import PageRetriever  # noqa: E402


@pytest.mark.anyio
class TestPageRetriever(standard.RetrieversIntegrationTests):  # type: ignore[misc, name-defined]
    """Every test of `RetrieversIntegrationTests`, without exception."""

    opened: ClassVar[Reranker]

    @pytest.fixture(autouse=True)
    def _open(self, reranker: Reranker) -> None:
        type(self).opened = reranker

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @property
    def retriever_constructor(self) -> type[PageRetriever]:
        return PageRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"reranker": self.opened, "k": 2}

    @property
    def retriever_query_example(self) -> str:
        return QUERY

"""The API keeps to its own document, whatever it is sent."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema

from ridgerank.ranking.reranker import Reranker
from ridgerank.serving.app import create_app
from ridgerank.serving.serve_settings import Limits, ServeSettings
from ridgerank.serving.service import Service

CONFIG = {
    "checks": {
        # A request in the right form may still name a page nobody stored, an image nobody can decode, or a
        # deadline nobody can meet.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "404", "408", "409", "422"]},
    },
}


@pytest.fixture(scope="module")
def api(reranker: Reranker) -> Iterator[BaseSchema]:
    limits = Limits(admitted=64, images=3, deadline_seconds=300)
    service = Service(reranker, ServeSettings(limits=limits, encode_missing=True, hosts=None))
    app = create_app(service, close=False)
    yield schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(CONFIG))
    service.engine.close()
    service.page_images.close()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_answer_breaks_the_contract(api: BaseSchema, mode: GenerationMode) -> None:
    requests = 0
    for operation_result in api.get_all_operations():
        assert isinstance(operation_result, Ok)
        operation = operation_result.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get" and "{" not in operation.path:
            continue  # nothing is sent, so nothing can be wrong with it

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=12,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def keeps_to_it(case: schemathesis.Case[Any]) -> None:
            nonlocal requests
            requests += 1
            case.call_and_validate(timeout=120)

        keeps_to_it()
    assert requests > 80

"""The API keeps to its own document, whatever it is sent."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.schemas import BaseSchema

from ridgerank.reranker import Reranker
from ridgerank.serving.app import create_app
from ridgerank.serving.service import Service
from ridgerank.serving.settings import Limits, Settings

CONFIG = {
    "checks": {
        # A request in the right form may still name a page nobody stored, an image nobody can decode, or a
        # deadline nobody can meet.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "404", "408", "409", "422"]},
    },
    "phases": {"coverage": {"enabled": False}},
}


@pytest.fixture(scope="module")
def api(reranker: Reranker) -> Iterator[BaseSchema]:
    service = Service(reranker, Settings(limits=Limits(admitted=64), encode_missing=True))
    app = create_app(service, close=False)
    yield schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(CONFIG))
    service.engine.close()
    service.pictures.close()


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(
    max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_no_answer_breaks_the_contract(case: schemathesis.Case) -> None:
    case.call_and_validate()

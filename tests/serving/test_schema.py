"""The API keeps to its own document, whatever it is sent."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from pydantic import ValidationError
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema

from ridgerank.reranker.reranker import Reranker
from ridgerank.serving import schemas
from ridgerank.serving.app import create_app
from ridgerank.serving.service import Service
from ridgerank.serving.settings import Limits, ServeSettings
from tests.serving.conftest import Corpus, end, served

CONFIG = {
    "checks": {
        # A request in the right form may still name a page nobody stored, an image nobody can decode, or a
        # deadline nobody can meet.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "404", "408", "409", "422"]}
    }
}


LIMITS = Limits(admitted=64, images=3, deadline_seconds=300)
UNHURRIED = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def is_request(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, schemas.RequestModel)


@pytest.fixture(scope="module")
def judged(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """A server over a copy of the store, beside which judgements are kept."""
    store = tmp_path_factory.mktemp("judged") / "store"
    shutil.copytree(corpus.store, store)
    with Reranker.open(store) as reranker:
        service = Service(
            [served(reranker, judge=True)],
            ServeSettings(limits=LIMITS, encode_missing=True, judge=True, hosts=None),
        )
        yield create_app(service, close=False)
        end(service)


@pytest.fixture(scope="module")
def api(judged: FastAPI) -> BaseSchema:
    return schemathesis.openapi.from_asgi(
        "/openapi.json", judged, config=SchemathesisConfig.from_dict(CONFIG)
    )


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_answer_breaks_the_contract(api: BaseSchema, mode: GenerationMode) -> None:
    requests = 0
    for operation_result in api.get_all_operations():
        assert isinstance(operation_result, Ok)
        operation = operation_result.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get" and "{" not in operation.path:
            continue  # nothing is sent, so nothing can be wrong with it

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(UNHURRIED, max_examples=8)
        def keeps_to_it(case: schemathesis.Case[Any]) -> None:
            nonlocal requests
            requests += 1
            case.call_and_validate(timeout=120)

        keeps_to_it()
    assert requests > 50


JUNK: list[Any] = [True, False, 0, 1, 1.0, 1.5, "x", "1", "true", [], ["x"], [1], [True], {}, {"page": "x"}]


@pytest.mark.parametrize("model", [each for each in vars(schemas).values() if is_request(each)])
def test_no_value_of_a_request_is_taken_for_one_of_another_type(model: type[schemas.RequestModel]) -> None:
    for field, value in product(model.model_fields, JUNK):
        with suppress(ValidationError):
            validate: Any = model.__pydantic_validator__.validate_assignment
            request = validate(model.model_construct(), field, value)
            taken = request.model_dump(mode="json", exclude_none=True).get(field)
            assert taken == value, (field, value)
            assert isinstance(taken, float) or type(taken) is type(value), (field, value)

"""The API keeps to its own document, whatever it is sent."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import Response
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema

from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.app import create_app
from ridgerank.serving.service import Service
from ridgerank.serving.settings import Limits, ServeSettings
from tests.serving.conftest import Corpus

CONFIG = {
    "checks": {
        # A request in the right form may still name a page nobody stored, an image nobody can decode, or a
        # deadline nobody can meet.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "404", "408", "409", "422"]}
    }
}


LIMITS = Limits(admitted=64, images=3, deadline_seconds=300)
UNHURRIED = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@contextmanager
def schema_of(reranker: Reranker, settings: ServeSettings) -> Iterator[BaseSchema]:
    service = Service(reranker, settings)
    app = create_app(service, close=False)
    yield schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(CONFIG))
    service.engine.close()
    service.page_images.close()


@pytest.fixture(scope="module")
def api(reranker: Reranker) -> Iterator[BaseSchema]:
    with schema_of(reranker, ServeSettings(limits=LIMITS, encode_missing=True, hosts=None)) as schema:
        yield schema


@pytest.fixture(scope="module")
def judged_api(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    """Over a copy of the store, beside which judgements are kept."""
    store = tmp_path_factory.mktemp("judged") / "store"
    shutil.copytree(corpus.store, store)
    with (
        Reranker.open(store) as reranker,
        schema_of(reranker, ServeSettings(limits=LIMITS, judge=True, hosts=None)) as schema,
    ):
        yield schema


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_answer_breaks_the_contract(api: BaseSchema, mode: GenerationMode) -> None:
    requests = 0
    for operation_result in api.get_all_operations():
        assert isinstance(operation_result, Ok)
        operation = operation_result.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get" and "{" not in operation.path:
            continue  # nothing is sent, so nothing can be wrong with it

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(UNHURRIED, max_examples=12)
        def keeps_to_it(case: schemathesis.Case[Any]) -> None:
            nonlocal requests
            requests += 1
            case.call_and_validate(timeout=120)

        keeps_to_it()
    assert requests > 80


def test_a_page_that_was_found_can_be_shown_explained_and_judged_in_any_order(judged_api: BaseSchema) -> None:
    answers: Counter[tuple[str, int]] = Counter()

    class Walk(judged_api.as_state_machine()):  # type: ignore[misc]
        """Calls one after the other, each with what those before it answered."""

        def after_call(self, response: Response, case: schemathesis.Case[Any]) -> None:
            answers[case.operation.path, response.status_code] += 1

    Walk.run(settings=settings(UNHURRIED, max_examples=10, stateful_step_count=6))
    assert answers["/v1/search", 200], answers
    linked = ("/v1/pages/{page_id}/image", "/v1/pages/{page_id}/thumbnail", "/v1/explain", "/v1/judgements")
    assert any(answers[path, 200] for path in linked), answers

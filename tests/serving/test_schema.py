"""The API keeps to its own document, whatever it is sent."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import BaseSchema

from ridgerank.reranker.reranker import Reranker
from ridgerank.serving.app import create_app
from ridgerank.serving.service import Service
from ridgerank.serving.settings import Limits, ServeSettings
from tests.serving.conftest import HOME, Corpus, end, served

CONFIG = {
    "checks": {
        # A request in the right form may still name a page nobody stored, an image nobody can decode, or a
        # deadline nobody can meet.
        "positive_data_acceptance": {"expected-statuses": ["2xx", "304", "404", "408", "409", "422"]}
    }
}


LIMITS = Limits(admitted=64, images=3, deadline_seconds=300)
UNHURRIED = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


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


def test_every_link_of_a_search_leads_to_an_answer(judged: FastAPI, corpus: Corpus) -> None:
    client = TestClient(judged, base_url=HOME)
    document = client.get("/openapi.json").json()
    operations = {
        operation.get("operationId"): (method, path)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    found = client.post("/v1/search", json={"query": corpus.queries[0], "k": 6}).json()

    def follow(expressions: dict[str, Any]) -> dict[str, Any]:
        return {name: resolve(found, expression) for name, expression in expressions.items()}

    links = document["paths"]["/v1/search"]["post"]["responses"]["200"]["links"]
    assert set(links) == {"image", "thumbnail", "explanation", "judgement"}
    for link in links.values():
        method, path = operations[link["operationId"]]
        body = follow(link["requestBody"]) if "requestBody" in link else None
        answer = client.request(method, path.format(**follow(link.get("parameters", {}))), json=body)
        assert answer.status_code == 200, (path, answer.text)
    [kept] = client.get("/v1/judgements", params={"query": found["query"]}).json()["merged"].items()
    assert kept == (found["results"][0]["page_id"], 1)


def resolve(answer: Any, expression: object) -> object:  # noqa: ANN401
    """What a link's runtime expression stands for in an answer; any other value is itself."""
    if not isinstance(expression, str) or not expression.startswith("$response.body#"):
        return expression
    for key in expression.partition("#")[2].split("/")[1:]:
        answer = answer[int(key) if isinstance(answer, list) else key]
    return answer


NUMBERS: dict[str, dict[str, object]] = {
    "/v1/search": {"k": True},
    "/v1/explain": {"page": "x", "layer": True},
    "/rerank": {"documents": ["x"], "top_n": True},
}


@pytest.mark.parametrize("path", NUMBERS)
def test_a_boolean_is_not_a_number(judged: FastAPI, corpus: Corpus, path: str) -> None:
    body = {"query": corpus.queries[0], **NUMBERS[path]}
    answer = TestClient(judged, base_url=HOME).post(path, json=body)
    wrong = [each["field"] for each in answer.json()["fields"]]
    assert (answer.status_code, wrong) == (422, [f"body.{list(NUMBERS[path])[-1]}"])

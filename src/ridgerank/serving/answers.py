"""The bodies of answers: of a search, and of rerank requests in the shapes of Cohere, Jina, vLLM and TEI.

By default a rerank answer has the fields of all of them. What cannot be had at once (a `document` that is a
text or an object) follows `ServeSettings.dialect`.
"""

import math
import re
import sys
import uuid
from collections import defaultdict
from itertools import takewhile
from typing import Any

from pydantic import BaseModel

from ridgerank.records import to_json
from ridgerank.reranker.candidates import CandidateList
from ridgerank.serving import schemas
from ridgerank.serving.documents import RequestDocuments, take_apart
from ridgerank.serving.engine import RankingResult
from ridgerank.serving.metrics import step_times, weight_source
from ridgerank.serving.service import Service
from ridgerank.serving.stores import StoreState

MAX_CHARACTERS = 220
_WORD = re.compile(r"\w+")
_SHORTEST = 3
"""Letters of a word that counts; shorter ones are in every line. Numbers count whatever their length."""
_COMMON_WORDS = """
all any about according among and are between but can did does each for from had has have her his how into
its many much not our per should than that the their them then there these they this those was were what when
where which who whom why with would your
"""
_COMMON = frozenset(_COMMON_WORDS.split())


_ALIKE, _ENDING = 4, 3
"""Forms of one word share this many letters at least, and end in this many others at most."""


def search_answer(
    service: Service, state: StoreState, result: RankingResult, *, top_n: int, lines: bool
) -> schemas.SearchResponse:
    """The best pages of a search, with both standardized scores, so that a caller can use another weight."""
    shown, store = result.ranking.pages[:top_n], state.reranker.store
    wanted = [page.page_id for page in shown] if lines else []
    texts = {page.page_id: page.text for page in store.pages(wanted)} if wanted else {}
    parts = ("retriever_part", "readout_part")  # the page computes these for any weight
    pages = f"/stores/{state.name}/v1/pages" if len(service.stores) > 1 else "/v1/pages"
    return schemas.SearchResponse(
        id=uuid.uuid4().hex,
        query=result.ranking.query,
        results=[
            schemas.SearchResult(
                **{name: value for name, value in to_json(page).items() if name not in parts},
                image_url=f"{pages}/{page.page_id}/image",
                thumbnail_url=f"{pages}/{page.page_id}/thumbnail",
                reason=page.reason,
                line=find_matching_line(texts.get(page.page_id, ""), result.ranking.query),
            )
            for page in shown
        ],
        **_ranking_facts(service, result),
    )


def rerank_answer(
    service: Service,
    result: RankingResult,
    request: schemas.RerankRequest,
    documents: RequestDocuments,
    *,
    version: str,
) -> schemas.RerankResponse | list[schemas.TeiResult] | dict[str, Any]:
    """The answer to a request: TEI's if it has `texts` and calls no version, else as the dialect has it."""
    # Documents of one page share its score and stand together.
    ranking, scored = result.ranking, result.candidates.scored
    indices: dict[str, list[int]] = defaultdict(list)  # page id → its documents
    for index, page_id in enumerate(result.candidates.sent):
        indices[page_id].append(index)
    return_documents = request.return_documents or request.return_text
    score_of = _log_odds if request.use_activation is False else float
    results = [
        schemas.RerankResult(
            index=index,
            relevance_score=score_of(page.relevance_score),
            document=documents.returned[index] if return_documents else None,
            page_id=None if page.page_id.startswith("documents[") else page.page_id,
            # Of an attachment, its position in the request.
            reference=f"documents[{index}]"
            if documents.names[index] in documents.attachments
            else page.reference,
            fused_score=page.fused_score,
            retriever_score=to_json(page.retriever_score) if scored else None,
            readout_score=to_json(page.readout_score),
        )
        for page in ranking.pages
        for index in indices[page.page_id]
    ]
    warnings = [*ranking.reasons, *foreign_warnings(service, request)]
    response = schemas.RerankResponse(
        id=request.request_id or uuid.uuid4().hex,
        results=results[: request.top_n or None],
        usage=token_usage(service, result.candidates),
        meta=schemas.Meta(api_version={"version": version or "1"}, warnings=warnings),
        **_ranking_facts(service, result),
    )
    if request.texts is not None and not version:
        return [_tei_result(each, request, documents) for each in response.results]
    if service.settings.dialect != "vllm":
        return response
    answer = response.model_dump()
    for each in answer["results"]:
        each["document"] = _vllm_document(request.sent_documents[each["index"]])
    return answer


def token_usage(service: Service, *lists: CandidateList) -> schemas.Usage:
    """The tokens that ran: those of each query, once per page."""
    tokens = service.backbone.tokens
    total = sum(len(tokens.suffix(candidates.query)) * len(candidates.page_ids) for candidates in lists)
    return schemas.Usage(prompt_tokens=total, total_tokens=total)


def foreign_warnings(service: Service, request: schemas.RerankRequest | schemas.ScoreRequest) -> list[str]:
    """What of a request this server does not use: another model's name, fields of other servers."""
    warnings = []
    if request.model not in (None, service.model, "ridgerank"):
        warnings.append(f"model {request.model!r} was asked for; this server ranks with {service.model!r}")
    if unused := request.unused_fields():
        warnings.append(f"not used: {', '.join(unused)} (a page is read whole, as it was stored)")
    return warnings


def _ranking_facts(service: Service, result: RankingResult) -> dict[str, Any]:
    """What a search and a rerank answer say alike."""
    ranking = result.ranking
    return {
        "model": service.model,
        "weight": ranking.weight,
        "weight_source": weight_source(result.candidates),
        "reranked": ranking.reranked,
        "reasons": list(ranking.reasons),
        "latency_ms": step_times(result),
    }


def _tei_result(
    result: schemas.RerankResult, request: schemas.RerankRequest, documents: RequestDocuments
) -> schemas.TeiResult:
    returned = documents.returned[result.index]
    text = returned.text if returned.text is not None else returned.page
    return schemas.TeiResult(
        index=result.index,
        score=result.fused_score if request.raw_scores else result.relevance_score,
        text=text if request.return_text else None,
    )


def _vllm_document(document: schemas.Document) -> dict[str, Any]:
    if isinstance(document, schemas.PartsDocument):
        parts = [part.model_dump(exclude_none=True) for part in document.content]
        return {"text": None, "multi_modal": parts}
    if isinstance(document, BaseModel):
        taken = take_apart(document)
        return {"text": taken.text or next(iter(taken.page_names), None), "multi_modal": None}
    return {"text": document, "multi_modal": None}


def _log_odds(score: float) -> float:
    score = min(max(score, sys.float_info.epsilon), 1 - sys.float_info.epsilon)
    return math.log(score) - math.log1p(-score)


def find_matching_line(text: str, query: str) -> schemas.MatchedLine | None:
    """The line with most different words of the query, the first of equals; the first where none has any.

    None where the page has no text.
    """
    wanted = {word.casefold() for word in _WORD.findall(query)}
    wanted = {word for word in wanted - _COMMON if len(word) >= _SHORTEST or word.isdigit()}
    lines = [" ".join(line.replace("|", " ").split()) for line in text.splitlines()]
    lines = [line for line in lines if any(sign.isalnum() for sign in line)]
    if not lines:
        return None
    return _cut(max(lines, key=lambda line: _count_matches(line, wanted)), wanted)


def _count_matches(line: str, wanted: set[str]) -> int:
    words = {word.casefold() for word in _WORD.findall(line)}
    return sum(any(_is_form(word, other) for other in words) for word in wanted)


def _cut(line: str, wanted: set[str]) -> schemas.MatchedLine:
    """At most `MAX_CHARACTERS` of the line, from shortly before the first word of the query on."""
    start = 0
    if len(line) > MAX_CHARACTERS:
        first = min((start for start, _ in _find_marks(line, wanted)), default=0)
        start = max(0, min(first - 40, len(line) - MAX_CHARACTERS))
        start = line.find(" ", start) + 1 if start else 0
    end = start + MAX_CHARACTERS
    shown = f"{'… ' if start else ''}{line[start:end].strip()}{' …' if end < len(line) else ''}"
    return schemas.MatchedLine(shown, tuple(_find_marks(shown, wanted)))


def _find_marks(line: str, wanted: set[str]) -> list[tuple[int, int]]:
    words = ((match.span(), match[0].casefold()) for match in _WORD.finditer(line))
    return [span for span, word in words if any(_is_form(word, other) for other in wanted)]


def _is_form(word: str, other: str) -> bool:
    """Whether two words differ in their endings only: `_ALIKE` letters or more alike, then few."""
    same = (one == another for one, another in zip(word, other, strict=False))
    alike = sum(1 for _ in takewhile(bool, same))
    ending = max(len(word), len(other)) - alike
    return ending == 0 or (alike >= _ALIKE and ending <= _ENDING and not word[0].isdigit())

"""Rankings in the words of the API."""

import uuid
from collections import defaultdict
from dataclasses import asdict

import numpy as np

from ridgerank.calibration.artifact import Calibration
from ridgerank.fusion.standardize import standardize
from ridgerank.ragged import Ragged
from ridgerank.ranking.candidates import CandidateList
from ridgerank.records import RankedPage, Ranking
from ridgerank.serving.engine import Served
from ridgerank.serving.request_pages import Offer
from ridgerank.serving.schemas.document_schemas import ReturnedDocument
from ridgerank.serving.schemas.info_schemas import CalibrationAnswer, StoreAnswer, WeightFacts
from ridgerank.serving.schemas.rerank_schemas import (
    ApiVersion,
    Meta,
    RerankAnswer,
    RerankRequest,
    RerankResult,
)
from ridgerank.serving.schemas.search_schemas import SearchAnswer, SearchResult
from ridgerank.serving.schemas.shared_schemas import LatencyMs, Usage, WeightSource
from ridgerank.serving.service import Service, last_part

_UNUSED = (
    "max_tokens_per_doc",
    "max_chunks_per_doc",
    "rank_fields",
    "priority",
    "truncate",
    "truncation_direction",
    "truncate_prompt_tokens",
    "truncation",
    "return_embeddings",
    "user",
)


def search_answer(service: Service, served: Served, *, top_n: int) -> SearchAnswer:
    """The best pages of a search, with all that is needed to order them at another weight."""
    ranking, prepared = _ranked(served)
    chances = _chances(service, ranking, prepared)
    # In the order the fused score was standardized in: the last digits of a sum depend on it.
    by_retriever = sorted(ranking.pages, key=lambda page: page.retriever_rank)
    columns = [[page.retriever_score for page in by_retriever], [page.readout_score for page in by_retriever]]
    lists = Ragged.of_lengths([len(by_retriever)] if by_retriever else [])
    retriever_z, readout_z = (standardize(np.array(column), lists).tolist() for column in columns)
    return SearchAnswer(
        id=uuid.uuid4().hex,
        model=service.model,
        query=ranking.query,
        weight=ranking.weight,
        weight_source=_source(prepared),
        note=ranking.note,
        results=[
            SearchResult(
                rank=page.rank,
                retriever_rank=page.retriever_rank,
                page_id=page.page_id,
                reference=page.reference,
                relevance_score=chance,
                fused_score=page.fused_score,
                retriever_score=page.retriever_score,
                readout_score=page.readout_score,
                retriever_z=retriever_z[page.retriever_rank - 1],
                readout_z=readout_z[page.retriever_rank - 1],
                image_url=f"/v1/pages/{page.page_id}/image",
                thumbnail_url=f"/v1/pages/{page.page_id}/thumbnail",
                reason=page.reason,
            )
            for page, chance in zip(ranking.pages, chances, strict=True)
        ][:top_n],
        latency_ms=_latency(served, ranking),
    )


def rerank_answer(
    service: Service,
    served: Served,
    request: RerankRequest,
    offer: Offer,
    page_ids: dict[str, str],
    *,
    version: str,
) -> RerankAnswer:
    """Every document in its place; documents of one page share its score and stand together.

    `page_ids` are those of what was attached, by name.
    """
    ranking, prepared = _ranked(served)
    chances = _chances(service, ranking, prepared)
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(offer.names):
        places[page_ids.get(name, name)].append(place)
    wanted = request.return_documents or request.return_text
    results = [
        RerankResult(
            index=place,
            relevance_score=chance,
            document=offer.sent[place] if wanted else None,
            page_id=page.page_id,
            reference=_reference(page, offer, place),
            fused_score=page.fused_score,
            retriever_score=page.retriever_score if prepared.scored else None,
            readout_score=page.readout_score,
        )
        for page, chance in zip(ranking.pages, chances, strict=True)
        for place in places[page.page_id]
    ]
    return RerankAnswer(
        id=uuid.uuid4().hex,
        model=service.model,
        results=results[: request.top_n],
        usage=usage(service, prepared),
        meta=Meta(api_version=ApiVersion(version=version), warnings=_warnings(service, request, ranking)),
        weight=ranking.weight,
        weight_source=_source(prepared),
        note=ranking.note,
        latency_ms=_latency(served, ranking),
    )


def usage(service: Service, *prepared: CandidateList) -> Usage:
    """Tokens that ran: each query's, once for each of its pages."""
    tokens = service.reranker.backbone.tokens
    return Usage(total_tokens=sum(len(tokens.suffix(one.query)) * len(one.page_ids) for one in prepared))


def sent_text(document: ReturnedDocument) -> str | None:
    """The text of a document as TEI returns it."""
    return document.text if document.text is not None else document.page


def store_answer(service: Service) -> StoreAnswer:
    """The store's facts, without where it lies."""
    info = service.reranker.store.info()
    lineage = asdict(info.lineage)
    return StoreAnswer(
        name=last_part(info.uri),
        pages=info.pages,
        prefix_bytes=info.prefix_bytes,
        bytes_per_page=info.bytes_per_page,
        lineage={**lineage, "backbone": last_part(lineage["backbone"])},
        retriever=None if service.retriever is None else last_part(service.retriever),
        encodes_missing=service.settings.encode_missing,
    )


def calibration_answer(service: Service) -> CalibrationAnswer:
    """The calibration's report."""
    calibration: Calibration = service.reranker.calibration
    facts = calibration.facts()
    diagnostics = facts["diagnostics"]
    plain = {name: value for name, value in diagnostics.items() if name not in ("label_free", "closed_form")}
    closed_form = diagnostics["closed_form"]
    return CalibrationAnswer(
        name=service.readout,
        retriever=last_part(calibration.retriever),
        target=calibration.target,
        state=calibration.state,
        penalty=facts["penalty"],
        weight=WeightFacts(**facts["weight"]),
        label_free=WeightFacts(**diagnostics["label_free"]),
        closed_form=None if closed_form is None else WeightFacts(**closed_form),
        relevance_slope=service.fused.slope,
        relevance_offset=service.fused.offset,
        **{**plain, "queries_from": last_part(plain["queries_from"])},
    )


def _ranked(served: Served) -> tuple[Ranking, CandidateList]:
    if served.ranking is None or served.prepared is None:
        raise TypeError("a piece of work that ranks nothing was answered as a ranking")
    return served.ranking, served.prepared


def _chances(service: Service, ranking: Ranking, prepared: CandidateList) -> list[float]:
    fused = np.array([page.fused_score for page in ranking.pages], dtype=np.float64)
    chances: list[float] = service.relevance(scored=prepared.scored).of(fused).tolist()
    return chances


def _source(prepared: CandidateList) -> WeightSource:
    return "calibration" if prepared.scored else "readout_alone"


def _reference(page: RankedPage, offer: Offer, place: int) -> str:
    """The page's name; of one that came with the request, its place there."""
    return f"documents[{place}]" if offer.names[place] in offer.attached else page.reference


def _latency(served: Served, ranking: Ranking) -> LatencyMs:
    times = ranking.latency
    return LatencyMs(
        queue=served.queue_ms,
        retrieval=times.retrieval_ms,
        reading=times.reading_ms,
        compute=times.compute_ms,
        ranking=times.ranking_ms,
    )


def _warnings(service: Service, request: RerankRequest, ranking: Ranking) -> list[str]:
    warnings = [ranking.note] if ranking.note else []
    if request.model not in (None, service.model, "ridgerank"):
        warnings.append(f"model {request.model!r} was asked for; this server ranks with {service.model!r}")
    unused = [name for name in _UNUSED if getattr(request, name) is not None]
    if unused:
        warnings.append(f"not used: {', '.join(unused)} (a page is read whole, as it was stored)")
    return warnings

"""The postprocessor as LlamaIndex uses it."""

import asyncio
import base64
from pathlib import Path

import pytest

from ridgerank.errors import QueryError
from ridgerank.reranker.candidates import Document
from ridgerank.reranker.reranker import Reranker
from tests.integrations.conftest import QUERY, png, scan

schema = pytest.importorskip("llama_index.core.schema", reason="the [llamaindex] extra is not installed")
NodeWithScore, TextNode, ImageNode = schema.NodeWithScore, schema.TextNode, schema.ImageNode

from ridgerank.integrations.llamaindex import PageNodeRetriever, PagePostprocessor  # noqa: E402

NAMES = [f"report.pdf#{number}" for number in range(1, 8)]


def test_nodes_name_pages_by_metadata_id_content_or_file(reranker: Reranker) -> None:
    expected = [page.relevance_score for page in reranker.rank(QUERY, NAMES, order="retriever").pages]
    for nodes in (
        [TextNode(text="words", metadata={"page_id": name}) for name in NAMES],
        [TextNode(id_=reranker.store.find(name), text="words") for name in NAMES],
        [TextNode(text=name) for name in NAMES],
        [
            TextNode(text="", metadata={"file_path": "in/report.pdf", "page_label": str(n)})
            for n in range(1, 8)
        ],
    ):
        unscored = [NodeWithScore(node=node) for node in nodes]
        ranked = PagePostprocessor(reranker=reranker).postprocess_nodes(unscored, query_str=QUERY)
        assert [scored.score for scored in ranked] == expected


def test_scores_are_the_retrievers_and_the_async_method_gives_the_same(reranker: Reranker) -> None:
    pairs = [(name, float(index % 3)) for index, name in enumerate(NAMES)]
    nodes = [NodeWithScore(node=TextNode(text=name), score=score) for name, score in pairs]
    postprocessor = PagePostprocessor(reranker=reranker, top_n=4)
    ranked = postprocessor.postprocess_nodes(nodes, query_str=QUERY)
    expected = [(page.reference, page.relevance_score) for page in reranker.rank(QUERY, pairs, top_k=4).pages]
    assert [(scored.node.text, scored.score) for scored in ranked] == expected
    assert asyncio.run(postprocessor.apostprocess_nodes(nodes, schema.QueryBundle(QUERY))) == ranked


def test_image_nodes_rank_by_name_by_file_and_by_image(reranker: Reranker, new_scan: Path) -> None:
    stored, new = png(scan("a stored scan")), scan("a page in no store")
    named = ImageNode(metadata={"page_id": "report.pdf#1"}, image_url="https://example.invalid/1.png")
    held = ImageNode(image=base64.b64encode(stored).decode())
    for unknown in (
        ImageNode(image_path=str(new_scan)),
        ImageNode(image=base64.b64encode(png(new)).decode()),
    ):
        nodes = [
            NodeWithScore(node=node, score=float(index)) for index, node in enumerate((named, held, unknown))
        ]
        ranked = PagePostprocessor(reranker=reranker).postprocess_nodes(nodes, query_str=QUERY)
        image = Document(image=lambda: new, score=2.0)
        expected = reranker.rank(QUERY, [("report.pdf#1", 0.0), ("scan.png#1", 1.0), image])
        assert [scored.score for scored in ranked] == [page.relevance_score for page in expected.pages]
        order = ["report.pdf#1", "scan.png#1"]
        places = [order.index(page.reference) if page.reference in order else 2 for page in expected.pages]
        assert [scored.node for scored in ranked] == [nodes[index].node for index in places]


def test_no_query_is_an_error_no_nodes_are_none_and_an_image_url_is_never_fetched(reranker: Reranker) -> None:
    postprocessor = PagePostprocessor(reranker=reranker)
    with pytest.raises(QueryError, match="pass query_bundle or query_str"):
        postprocessor.postprocess_nodes([NodeWithScore(node=TextNode(text=NAMES[0]))])
    assert postprocessor.postprocess_nodes([], query_str=QUERY) == []
    node = NodeWithScore(node=ImageNode(image_url="https://example.invalid/1.png"), score=1.0)
    [kept] = postprocessor.postprocess_nodes([node], query_str=QUERY)
    assert kept.node is node.node


def test_the_retriever_gives_pages_with_their_text(reranker: Reranker) -> None:
    retriever = PageNodeRetriever(reranker, similarity_top_k=3, candidates=6)
    expected = reranker.search(QUERY, k=6, top_k=3).pages
    stored = reranker.store.pages([page.page_id for page in expected])
    for nodes in (retriever.retrieve(QUERY), asyncio.run(retriever.aretrieve(QUERY))):
        assert [(node.node.node_id, node.score) for node in nodes] == [
            (page.page_id, page.relevance_score) for page in expected
        ]
        assert [node.node.text for node in nodes] == [page.text for page in stored]

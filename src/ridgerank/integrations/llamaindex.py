"""LlamaIndex: a retriever, and a node postprocessor for query and chat engines; image nodes included."""

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import BaseNode, ImageNode, MetadataMode, NodeWithScore, QueryBundle, TextNode

from ridgerank.documents.sources import chunk_page_names
from ridgerank.errors import QueryError
from ridgerank.integrations import matching
from ridgerank.reranker.candidates import Document
from ridgerank.reranker.reranker import CANDIDATES, Reranker


class PageNodeRetriever(BaseRetriever):  # type: ignore[misc]
    """Finds pages and reranks them: `similarity_top_k` nodes with the page's text, best first.

    A node's score is from 0 to 1; its metadata has `source`, `page` (from 1), `page_id` and both scores.
    """

    def __init__(
        self,
        reranker: Reranker,
        *,
        similarity_top_k: int = 5,
        candidates: int = CANDIDATES,
        min_score: float | None = None,
    ) -> None:
        """Wrap a reranker; `candidates` pages are reranked, and those below `min_score` are left out."""
        super().__init__()
        self.reranker = reranker
        self.similarity_top_k = similarity_top_k
        self.candidates = candidates
        self.min_score = min_score

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        retrieved = matching.retrieve_pages(
            self.reranker,
            query_bundle.query_str,
            k=self.similarity_top_k,
            candidates=self.candidates,
            min_score=self.min_score,
        )
        return [
            NodeWithScore(
                node=TextNode(
                    id_=page.page_id, text=text, metadata=matching.page_metadata(page, first_page=1)
                ),
                score=page.relevance_score,
            )
            for page, text in retrieved
        ]


class PagePostprocessor(BaseNodePostprocessor):  # type: ignore[misc]
    """Keeps the `top_n` best nodes, best first, with scores from 0 to 1.

    A node names its page in `metadata[page_key]`, by `file_path` and `page_label` (or `source` and `page`,
    from 1), by its id, or by its content; else its content is read, or its image or the file at its path;
    an `image_url` is never fetched. The scores they come with are the retriever's; without scores the order
    is. `retriever` is that retriever's name.
    """

    reranker: Reranker
    top_n: int | None = None
    page_key: str = matching.PAGE_KEY
    retriever: str | None = None

    @classmethod
    def class_name(cls) -> str:
        """The name LlamaIndex knows it by."""
        return "PagePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise QueryError("nodes without a query; pass query_bundle or query_str")
        documents = [self._document(scored.node, scored.score) for scored in nodes]
        ranking = matching.rank_documents(
            self.reranker,
            query_bundle.query_str,
            documents,
            top_k=self.top_n,
            order="retriever",
            retriever=self.retriever,
        )
        return [NodeWithScore(node=nodes[index].node, score=page.relevance_score) for index, page in ranking]

    def _document(self, node: BaseNode, score: float | None) -> Document:
        content = node.get_content(metadata_mode=MetadataMode.NONE)
        chunk_names = chunk_page_names(node.metadata)
        names = (node.metadata.get(self.page_key), *chunk_names, node.node_id, content)
        image = matching.image_loader(node.image, node.image_path) if isinstance(node, ImageNode) else None
        return Document(names, content, image, score)

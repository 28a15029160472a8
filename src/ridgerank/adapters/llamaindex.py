"""LlamaIndex: a node postprocessor, for query engines and chat engines; image nodes included."""

from ridgerank.adapters.matching import PAGE_KEY, LibraryDocument, image_loader, rank_documents
from ridgerank.errors import ExtraMissing, QueryError
from ridgerank.ranking.reranker import Reranker

try:
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, ImageNode, MetadataMode, NodeWithScore, QueryBundle
except ModuleNotFoundError as error:
    raise ExtraMissing("llama-index-core is not installed: `pip install 'ridgerank[llamaindex]'`") from error


class PagePostprocessor(BaseNodePostprocessor):  # type: ignore[misc]
    """Keeps the `top_n` best nodes, best first, with their fused scores.

    A node names its page in `metadata[page_key]`, by its id, or by its content. The score it comes with is
    the retriever's. An image node of a page that is in no store is encoded on the fly, from its image or its
    path; an `image_url` is never fetched.
    """

    reranker: Reranker
    top_n: int | None = None
    page_key: str = PAGE_KEY

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
        ranking = rank_documents(self.reranker, query_bundle.query_str, documents, top_k=self.top_n)
        return [
            NodeWithScore(node=nodes[ranked.index].node, score=ranked.page.fused_score) for ranked in ranking
        ]

    def _document(self, node: BaseNode, score: float | None) -> LibraryDocument:
        content = node.get_content(metadata_mode=MetadataMode.NONE)
        names = (node.metadata.get(self.page_key), node.node_id, content)
        image = image_loader(node.image, node.image_path) if isinstance(node, ImageNode) else None
        return LibraryDocument(names, score, image)

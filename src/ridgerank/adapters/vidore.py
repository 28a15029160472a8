"""vidore-benchmark: a pipeline it can evaluate. `BasePipeline` is in its repository, in no release yet."""

from collections import defaultdict
from collections.abc import Sequence

from PIL.Image import Image

from ridgerank.adapters.matching import CorpusNames, corpus_page_name
from ridgerank.documents.pages import page_from_image
from ridgerank.errors import ExtraMissing, StoreError
from ridgerank.ranking.reranker import CANDIDATES, Reranker
from ridgerank.store.lance_dataset import shorten

try:
    from vidore_benchmark.pipeline_evaluation.base_pipeline import BasePipeline
except ModuleNotFoundError as error:
    raise ExtraMissing(
        "vidore-benchmark with its BasePipeline is not installed, and no release up to 5.0.0 has it: "
        "`pip install git+https://github.com/illuin-tech/vidore-benchmark`"
    ) from error


class PagePipeline(BasePipeline):  # type: ignore[misc]
    """Retrieves and reranks the pages of a corpus that is stored and calibrated already.

    `names` leads from corpus ids to pages, by id or reference, or by a pattern such as `{}.png#1`. A corpus
    id not in it is taken as the page's name itself, and a page not found by name is looked for by its image.
    """

    def __init__(
        self, reranker: Reranker | str, *, names: CorpusNames | None = None, k: int = CANDIDATES
    ) -> None:
        """Wrap a reranker, or open the store of that name; the retriever finds `k` candidates per query."""
        self.reranker = Reranker.open(reranker) if isinstance(reranker, str) else reranker
        self._names = names
        self._k = k
        self._corpus: dict[str, list[str]] = {}

    def index(
        self,
        corpus_ids: Sequence[str],
        corpus_images: Sequence[Image],
        corpus_texts: Sequence[str],
        dataset_name: str | None = None,
    ) -> None:
        """Find the stored page of each item of the corpus; an item without one is an error that names it."""
        names = {corpus_id: corpus_page_name(self._names, corpus_id) for corpus_id in corpus_ids}
        known_pages = self.reranker.store.lookup_many(names.values())
        corpus: dict[str, list[str]] = defaultdict(list)
        missing = []
        for index, corpus_id in enumerate(corpus_ids):
            page_id = known_pages.get(names[corpus_id])
            if page_id is None:  # only now: a column of a dataset decodes what is read from it
                page_id = self._match_image(corpus_id, corpus_images[index])
            if page_id is None:
                missing.append(corpus_id)
            else:
                corpus[page_id].append(corpus_id)
        if missing:
            raise StoreError(
                f"{len(missing)} of {len(corpus_ids)} pages of {dataset_name or 'the corpus'} are not in the "
                f"page store at {self.reranker.store.uri}: {shorten(missing)}; index them, or give `names`"
            )
        self._corpus = dict(corpus)

    def search(self, query_ids: Sequence[str], queries: Sequence[str]) -> dict[str, dict[str, float]]:
        """Query id → corpus id → fused score, for the candidates of each query."""
        if not self._corpus:
            raise StoreError("a search before the corpus was given; call `index` first")
        others = len(self.reranker.store) - len(self._corpus)
        # Pages of other corpora may stand before the k-th of this one, but no more of them than there are.
        queries = list(queries)  # a column of a dataset is no list
        retrieved = self.reranker.retriever.search_many(queries, self._k + others)
        candidates = [
            [candidate for candidate in pages if candidate.page_id in self._corpus][: self._k]
            for pages in retrieved
        ]
        rankings = self.reranker.rank_many(queries, candidates)
        return {
            query_id: {
                corpus_id: page.fused_score
                for page in ranking.pages
                for corpus_id in self._corpus[page.page_id]
            }
            for query_id, ranking in zip(query_ids, rankings, strict=True)
        }

    def _match_image(self, corpus_id: str, image: Image) -> str | None:
        page_id = page_from_image(image, corpus_id, max_pixels=self.reranker.backbone.page_budget).page_id
        return page_id if page_id in self.reranker.store else None

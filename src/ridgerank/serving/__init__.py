"""The reranker behind HTTP: the rerank API people already call, and a page to look at."""

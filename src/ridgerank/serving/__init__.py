"""The reranker behind HTTP: the rerank API of existing clients, and a web page."""

"""Requests and responses of every endpoint, as JSON has them. Knows no model and no queue.

The rerank schema is that of existing clients: Cohere's (v1, v2), Jina's and vLLM's agree on its core, and
TEI's `texts` is accepted too. Extensions are optional fields of a request and further fields of a response.
An unknown field is refused: a setting that is ignored in silence is worse than an error.
"""

"""What goes over the wire: requests and answers of every endpoint. Knows no model and no queue.

The rerank schema is the one people call already: Cohere's (v1, v2), Jina's and vLLM's agree on its core, and
TEI's `texts` is taken too. Our own extensions are optional fields of a request and further fields of an
answer. A field nobody knows is refused: a dial that is dropped in silence is worse than an error.
"""

"""The retriever's and the reranker's score become one: standardize, weigh, add (paper §3.1)."""

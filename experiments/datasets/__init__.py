"""What is evaluated on: corpora of documents with queries and judgements."""

"""Late interaction models: a page becomes many vectors, a query one for each of its tokens."""

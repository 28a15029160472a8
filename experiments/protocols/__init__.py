"""How §4 evaluates: corpora left out in turn, weights swept over a grid, agreement set against relevance."""

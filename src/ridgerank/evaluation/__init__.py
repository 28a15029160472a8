"""How good a ranking is: the one part that reads relevance judgements. Ranking never does."""

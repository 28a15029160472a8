"""Documents into a store, in order and in batches that a second run cuts alike."""

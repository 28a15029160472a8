"""A query becomes candidates: by late interaction, by text, or from the results of another system."""

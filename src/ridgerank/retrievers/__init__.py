"""A query becomes candidates: by late interaction, by text, or as someone else found them."""

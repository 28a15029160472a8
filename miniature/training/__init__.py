"""How the miniature's models are made and taught. Nothing here is needed to use them."""

"""How much of the cross encoder's gain a method keeps."""


def recovery(retriever: float, ridgerank: float, cross_encoder: float) -> float:
    """The share of the cross encoder's gain over the retriever that is kept, in percent."""
    return 100.0 * (ridgerank - retriever) / (cross_encoder - retriever)

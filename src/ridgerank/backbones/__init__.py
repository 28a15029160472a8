"""The multimodal language models, cut at a layer: one file per family."""

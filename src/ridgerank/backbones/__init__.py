"""The language models, multimodal and plain, cut at a layer: one file per family."""

"""A small world that two cores can learn: documents we draw, questions about them, models that read them.

A page's way, in order: `vocabulary` has the words and the rule that keeps evaluation apart from training;
`themes` chooses what a document is about; `layouts` composes pages of `blocks` on a grid of cells (`world`),
in a style of `styles`; `queries` asks about them and knows the answers; `corpora` names the twelve; `draw`
makes PDF files of them and `render` images; `training` is the endless stream that the models learn from.
"""

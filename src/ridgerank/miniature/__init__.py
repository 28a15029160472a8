"""A small world that two cores can learn: documents drawn here, questions about them, models that read them.

How a page is made, in order: `vocabulary` has the words and the rule that keeps evaluation apart from
training; `themes` chooses what a document is about; `layouts` composes pages of `page_blocks` on a grid of
cells (`world`), in a style of `styles`; `question_kinds` are the questions and know their answers,
`question_choice` selects hard ones; `corpora` names the twelve corpora; `draw` writes PDF files.
How the models were trained is in the repository, in `experiments/miniature_training`.
"""

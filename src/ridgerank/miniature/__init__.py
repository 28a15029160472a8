"""A small world that two cores can learn: documents we draw, questions about them, models that read them.

A page's way, in order: `vocabulary` has the words and the rule that keeps evaluation apart from training;
`themes` chooses what a document is about; `layouts` composes pages of `blocks` on a grid of cells (`world`),
in a style of `styles`; `queries` are the questions and know their answers, `asking` chooses hard ones;
`corpora` names the twelve, and `counting` is the ranking to beat; `draw` makes PDF files and `render` images;
`training` is the endless stream that models learn from, `cells` its label for every cell.
"""

"""How §4 evaluates: corpora left out in turn, weights from the next corpus or a grid, agreement.

Every function here takes arrays and returns arrays or records; none loads a model or reads a file.
"""

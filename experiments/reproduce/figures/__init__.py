"""The paper's figures, each drawn from figures that are also written as JSON."""

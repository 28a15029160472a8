"""What costs time, computed once and kept: vectors, candidates, stores, margins, states, scores of arms."""

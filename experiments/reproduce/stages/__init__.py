"""What costs time, computed once and saved: vectors, candidates, stores, margins, states, baseline scores."""

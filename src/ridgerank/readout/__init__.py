"""A state becomes a score: one vector, fitted by one centered ridge solve (paper §3.2, §3.3)."""

"""Questions about real documents: read them, keep what was run, fit readouts that other questions teach."""

"""How §4 and the appendix combine what was measured. Every function here is arrays in, records out."""

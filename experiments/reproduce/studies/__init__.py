"""The paper's studies: each applies the protocols of §4 and the appendix to what a run measured."""

"""The paper's nine tables, and two of ours."""

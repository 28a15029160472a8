"""What is fast, what is safe, and by how much: each module prints a table, then one line of JSON."""

"""Runs: which pages a system returned for which query, and with what score."""

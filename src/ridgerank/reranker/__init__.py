"""Candidates in, rankings out."""

"""Ranking metrics, and how sure their means and differences are."""

"""Tuning: a search whose objective is measured. The engine is never imported here; it comes as a callable."""

"""Conversations on top of the engine: generation, sampling, history."""

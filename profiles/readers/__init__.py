"""Readers of model metadata: Hugging Face config, GGUF header, own checkpoints; header bytes only."""

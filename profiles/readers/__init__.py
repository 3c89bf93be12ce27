"""Readers of model metadata: Hugging Face configs, GGUF headers, own checkpoints. Never a weight byte."""

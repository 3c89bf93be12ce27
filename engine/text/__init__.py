"""Tokenizers, chat templates and incremental detokenisation."""

"""Tokenizers, chat templates and incremental detokenisation.

The modules are imported one by one (`twofold.engine.text.tokenizer`, `.chat_template`, `.detokenize`, `.thinking`),
so that what needs only a vocabulary does not load Jinja.
"""

"""Tokenizers, chat templates and incremental detokenisation. Importing it loads neither `tokenizers` nor Jinja."""

from twofold.engine.text.chat_template import ChatTemplate
from twofold.engine.text.detokenize import Detokenizer
from twofold.engine.text.tokenizer import Tokenizer, write_text_files

__all__ = ["ChatTemplate", "Detokenizer", "Tokenizer", "write_text_files"]

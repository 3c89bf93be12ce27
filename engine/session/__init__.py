"""Conversations on top of the engine: history, thinking, a full context, interruptions, saving."""

from twofold.engine.session.session import AnswerStats, Piece, Session

__all__ = ["AnswerStats", "Piece", "Session"]

"""How fast a loaded model is: interleaved rounds, medians with their spread, no speed without a check."""

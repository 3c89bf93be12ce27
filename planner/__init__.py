"""What should run: bytes, seconds, the verdict and its explanation, and the `Plan` that the engine follows.

Knows nothing about torch, the engine or the command line.
"""

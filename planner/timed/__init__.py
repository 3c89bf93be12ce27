"""Seconds of the CPU engine's passes as sums of timed kernels."""

"""Run it: checkpoints, quantising, model graphs, KV cache, draft, verify, generation and sessions.

Knows nothing about probing the machine or the command line.
"""

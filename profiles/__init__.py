"""What is known: value objects with a schema, the card database, and readers of model metadata.

Knows nothing about torch, planning, the engine or the command line.
"""

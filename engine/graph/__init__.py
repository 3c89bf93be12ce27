"""Model graphs as wiring, one file per architecture family."""

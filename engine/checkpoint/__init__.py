"""The twofold checkpoint: its fields, reading and writing."""

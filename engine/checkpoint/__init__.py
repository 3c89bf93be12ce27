"""The checkpoint format: reading (memory-mapped) and writing."""

from twofold.engine.checkpoint.config import CheckpointConfig
from twofold.engine.checkpoint.reader import Checkpoint
from twofold.kernels.naive.split_weights import SplitWeights

__all__ = ["Checkpoint", "CheckpointConfig", "SplitWeights"]

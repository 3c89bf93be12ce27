"""From source weights to base and residual: rotation, levels, GPTQ, calibration, the resumable pipeline."""

"""Whether the plan's speed knobs leave the text alone, shown by running them."""

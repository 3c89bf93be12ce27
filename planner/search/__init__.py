"""The search for a plan: a space of knobs, an objective, and Optuna between them."""

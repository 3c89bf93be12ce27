"""The answer of `fit` as one HTML file: `page` says what is on it, `charts` draws, `write` puts it on the disk."""

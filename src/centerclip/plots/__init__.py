"""Every picture: figures of results, kept patches and token maps, hits."""

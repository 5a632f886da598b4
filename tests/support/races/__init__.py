"""Real processes that race each other, and what interleaves or breaks them."""

"""Small fitted tables that answer a recurring question in microseconds, and proofs of how often they err."""

"""Where decisions are kept and replayed: the first decision is the precedent."""

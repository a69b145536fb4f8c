"""Models behind one interface."""

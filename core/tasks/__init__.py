"""Recurring questions, registered under an id: what was taught, what was proven, and what is served."""

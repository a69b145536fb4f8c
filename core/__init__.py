"""Precedent's library: values in, values out.

No Ray, no HTTP framework, no environment, no clock of its own.
"""

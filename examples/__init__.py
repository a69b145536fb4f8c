"""Requests as real callers send them, and a program that sends them to the running service."""

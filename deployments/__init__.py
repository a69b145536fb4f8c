"""Ray Serve shells: nothing here decides anything about the domain."""

"""Ray jobs and commands, safe to stop and to run again."""

"""One file per question. Each says what it measures and what it does not."""

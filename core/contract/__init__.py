"""What goes in and what comes out: strict parsing, answers, confidence, margins."""

"""One computation per key across all Routers: who computes, who waits, and what becomes of both."""

"""Knowledge about inference servers: builds, ranks, and the memory they take."""

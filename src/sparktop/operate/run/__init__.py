"""One plan carried out."""

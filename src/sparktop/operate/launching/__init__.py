"""A launch from a recipe, in parts: what is asked, seats and rooms, gates, fetching, starting, proving. Pure."""

"""Named sources of recipes: folders, git repositories that sparktop keeps a copy of, and sparkrun's registries."""

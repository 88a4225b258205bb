"""What each engine that is known is: one TOML file an engine, and their reader."""

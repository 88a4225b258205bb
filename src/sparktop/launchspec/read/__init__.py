"""Files and running engines to LaunchSpecs."""

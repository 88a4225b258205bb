"""Whether one fact of a node, container or pair is as it should be; live rules, gates and lints show the answer."""

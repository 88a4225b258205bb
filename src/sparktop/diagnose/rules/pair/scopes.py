"""Where rules about two nodes apply."""

SPANNING_ENGINE = "one engine over two nodes, vLLM or SGLang"

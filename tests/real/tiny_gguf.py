"""A random llama of 3 million parameters that llama.cpp serves: python tiny_gguf.py FILE [big] (PyPI's gguf and numpy).

Its vocabulary is SentencePiece's: 3 marks, 256 bytes, 2 marks of a chat, letters, and words, which alone are said.
`big` has 1.9 GB, so that its loading takes seconds.
"""

import sys
from itertools import product

import gguf
import numpy

LAYERS, HIDDEN, HEADS, KV_HEADS, FORWARD = (16, 2048, 16, 4, 8192) if "big" in sys.argv[2:] else (4, 256, 8, 4, 512)
HEAD = HIDDEN // HEADS
endings = ("a", "e", "i", "o", "u", "an", "en", "in", "on", "un", "ar", "er", "or", "al", "el")
syllables = [first + ending for first in "bcdfghklmnprstvw" for ending in endings]
tokens = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "<|im_start|>",
    "<|im_end|>",
    "\u2581",
    "\n",
]
kinds = [2, 3, 3, *[6] * 256, 3, 3, 1, 1]
tokens += [chr(code) for code in range(33, 127) if chr(code).isalnum() or chr(code) in ".,!?"]
spoken = len(tokens)
tokens += ["\u2581" + "".join(pair) for pair in product(syllables[:60], syllables[:40])][: 2048 - spoken]
kinds += [1] * (len(tokens) - len(kinds))

out = gguf.GGUFWriter(sys.argv[1], "llama")
out.add_name("tiny")
out.add_context_length(8192)
out.add_embedding_length(HIDDEN)
out.add_block_count(LAYERS)
out.add_feed_forward_length(FORWARD)
out.add_head_count(HEADS)
out.add_head_count_kv(KV_HEADS)
out.add_layer_norm_rms_eps(1e-5)
out.add_rope_dimension_count(HEAD)
out.add_vocab_size(len(tokens))
out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
out.add_tokenizer_model("llama")
out.add_tokenizer_pre("default")
out.add_token_list(tokens)
out.add_token_scores([-float(at) for at in range(len(tokens))])
out.add_token_types(kinds)
out.add_bos_token_id(1)
out.add_eos_token_id(tokens.index("<|im_end|>"))
out.add_unk_token_id(0)
out.add_add_bos_token(True)
out.add_add_eos_token(False)
out.add_chat_template(
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n'}}{% endif %}"
)
chance = numpy.random.default_rng(1)


def matrix(name, rows, columns, silent=0):
    values = (chance.standard_normal((rows, columns), dtype=numpy.float32) * 0.06).astype(numpy.float16)
    values[:silent] = 0
    out.add_tensor(name, values)


def ones(name):
    out.add_tensor(name, numpy.ones(HIDDEN, numpy.float32))


matrix("token_embd.weight", len(tokens), HIDDEN)
for layer in range(LAYERS):
    block = f"blk.{layer}."
    ones(f"{block}attn_norm.weight")
    matrix(f"{block}attn_q.weight", HEADS * HEAD, HIDDEN)
    matrix(f"{block}attn_k.weight", KV_HEADS * HEAD, HIDDEN)
    matrix(f"{block}attn_v.weight", KV_HEADS * HEAD, HIDDEN)
    matrix(f"{block}attn_output.weight", HIDDEN, HEADS * HEAD)
    ones(f"{block}ffn_norm.weight")
    matrix(f"{block}ffn_gate.weight", FORWARD, HIDDEN)
    matrix(f"{block}ffn_up.weight", FORWARD, HIDDEN)
    matrix(f"{block}ffn_down.weight", HIDDEN, FORWARD)
ones("output_norm.weight")
matrix("output.weight", len(tokens), HIDDEN, silent=spoken)
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()

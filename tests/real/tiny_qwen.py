"""A random Qwen3 of 3 million parameters whose every token is a word: python tiny_qwen.py FOLDER (vLLM's venv has what
it needs)."""

import sys
from itertools import product

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

endings = ("a", "e", "i", "o", "u", "an", "en", "in", "on", "un", "ar", "er", "or", "al", "el")
syllables = [first + ending for first in "bcdfghklmnprstvw" for ending in endings]
marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", "system", "user", "assistant"]
words = (marks + ["".join(pair) for pair in product(syllables[:60], syllables[:40])])[:2048]
base = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
base.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
base.decoder = decoders.WordPiece(prefix="##", cleanup=False)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=base,
    eos_token="<|im_end|>",
    pad_token="<|endoftext|>",
    unk_token="<unk>",
    additional_special_tokens=["<|im_start|>"],
)
tokenizer.chat_template = (
    "{% for m in messages %}<|im_start|> {{m['role']}} {{m['content']}} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
torch.manual_seed(1)
model = Qwen3ForCausalLM(
    Qwen3Config(
        vocab_size=len(words),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        eos_token_id=2,
        pad_token_id=0,
    )
).to(torch.bfloat16)
with torch.no_grad():
    model.lm_head.weight[: len(marks)] = 0  # no mark wins: what it says is text, and as long as was asked for
folder = sys.argv[1]
tokenizer.save_pretrained(folder)
model.save_pretrained(folder)

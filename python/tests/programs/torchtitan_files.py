"""Creates the files to train torchtitan's smallest model: a tokenizer and a text."""

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

words = ["<unk>", "<s>", "</s>", *(f"w{number}" for number in range(500))]
tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
Path("assets").mkdir()
tokenizer.save("assets/tokenizer.json")
Path("assets/tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
Path("text").mkdir()
text = json.dumps({"text": " ".join(words[3:])})
Path("text/data.json").write_text("\n".join([text] * 100))

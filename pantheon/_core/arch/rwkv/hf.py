"""How RWKV's files come: one safetensors file without config.json, beside a vocabulary. Names are the same in GGUF."""

ARCH = "rwkvx"
WORD = "rwkv"                                # of model classes that transformers has, whose files nothing here reads
MARKS = ("emb.weight", "rwkv.emb.weight")    # a file with one of these tensors is RWKV's
VOCABULARIES = "rwkv_vocab*.txt"
# In a GGUF file of a type these have that one; the small ones its floats; vectors are F32.
MATRIX = r"(.*\.)?(emb|head|key|value|receptance|output)\.weight"
SMALL = r".*\.att\.[wagv][12]"
NO_CONFIG = "RWKV models are converted from a folder with their safetensors file and vocabulary, without config.json"

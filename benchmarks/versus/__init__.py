"""twofold beside llama.cpp: the parts of `against_llama_cpp.py`, one subject a file."""

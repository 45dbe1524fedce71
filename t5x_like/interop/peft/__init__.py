"""Adapters in the files of PEFT, which transformers opens beside a base model."""

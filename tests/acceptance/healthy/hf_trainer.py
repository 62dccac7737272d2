"""Hugging Face Trainer on a tiny BERT made from a config."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __len__(self):
        return 16 * 2 * 40

    def __getitem__(self, index):
        words = torch.arange(32).add(index).remainder(300)
        return {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": index % 2}


shape = {"vocab_size": 300, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = BertForSequenceClassification(BertConfig(**shape, intermediate_size=256, max_position_embeddings=64))
with tempfile.TemporaryDirectory() as folder:
    quiet = {"report_to": [], "save_strategy": "no", "logging_steps": 20, "disable_tqdm": True}
    arguments = TrainingArguments(folder, use_cpu=True, per_device_train_batch_size=16, max_steps=40, **quiet)
    Trainer(model=model, args=arguments, train_dataset=Sentences()).train()

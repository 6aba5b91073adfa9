"""Trains a transformer encoder with Lightning."""

import argparse

import lightning
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
arguments = parser.parse_args()


class Encoder(lightning.LightningModule):
    """An encoder of BERT's size, followed by a classifier."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30522, 768)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True), 12)
        self.classifier = nn.Linear(768, 2)

    def training_step(self, batch, _):
        tokens, labels = batch
        loss = nn.functional.cross_entropy(self.classifier(self.encoder(self.embedding(tokens))[:, 0]), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


tokens = torch.randint(30522, (4 * arguments.batch, 512))
data = torch.utils.data.TensorDataset(tokens, torch.randint(2, (len(tokens),)))
trainer = lightning.Trainer(max_steps=3, precision="16-mixed", logger=False, enable_checkpointing=False, gradient_clip_val=1.0)
trainer.fit(Encoder(), torch.utils.data.DataLoader(data, batch_size=arguments.batch))

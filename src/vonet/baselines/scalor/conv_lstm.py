"""A convolutional LSTM with peepholes (Shi et al., 2015), one frame at a time: its state goes in and comes out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class ConvLSTMCell(nn.Module):
    """i, f, o = σ(W_x x + W_h h + P c), with the previous cell state c; c' = f c + i tanh(·); h' = o tanh(c')."""

    def __init__(self, channels: int, grid: int):
        super().__init__()
        self.of_input = nn.Conv2d(channels, 4 * channels, 3, padding=1)
        self.of_hidden = nn.Conv2d(channels, 4 * channels, 3, padding=1, bias=False)
        self.peepholes = nn.Parameter(torch.zeros(3, channels, grid, grid))

    def forward(
        self, x: Float[Tensor, "B C G G"], hidden: Float[Tensor, "B C G G"], cell: Float[Tensor, "B C G G"]
    ) -> tuple[Float[Tensor, "B C G G"], Float[Tensor, "B C G G"]]:
        parts = (self.of_input(x) + self.of_hidden(hidden)).chunk(4, dim=1)
        gates = zip(parts[:3], self.peepholes, strict=True)
        enter, keep, leave = ((part + peephole * cell).sigmoid() for part, peephole in gates)
        cell = keep * cell + enter * parts[3].tanh()
        return leave * cell.tanh(), cell


class ConvLSTM(nn.Module):
    """A stack of cells. The second dimension of the state, after the batch, counts the cells."""

    def __init__(self, channels: int, grid: int, layers: int):
        super().__init__()
        self.cells = nn.ModuleList(ConvLSTMCell(channels, grid) for _ in range(layers))

    def forward(
        self, x: Float[Tensor, "B C G G"], hidden: Float[Tensor, "B L C G G"], cell: Float[Tensor, "B L C G G"]
    ) -> tuple[Float[Tensor, "B L C G G"], Float[Tensor, "B L C G G"]]:
        hiddens, cells = [], []
        for number, layer in enumerate(self.cells):
            x, after = layer(x, hidden[:, number], cell[:, number])
            hiddens.append(x)
            cells.append(after)
        return torch.stack(hiddens, dim=1), torch.stack(cells, dim=1)

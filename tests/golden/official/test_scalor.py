"""The losses, masks, counts of objects and gradients of SCALOR, by its authors' code and by ours."""

import pytest
import torch
from torch import Tensor

from tests.golden.official.comparison import Official
from vonet.baselines.scalor import SCALOR, SCALORConfig, scalor
from vonet.interface import Clip

BATCH, TIME, SIDE, PLACES, UPDATE = 2, 4, 64, 4, 40_000
CONFIG = SCALORConfig(
    size=(SIDE, SIDE), grid=4, glimpse=32, slots=PLACES + 1, what_dim=8, background_dim=4
)  # boxes as the fixture says

# What a module of the authors' is called here. Within a module, layers have the same numbers.
MODULES = {
    "image_enc.image_enc.enc": "frame_encoder.entry",
    "image_enc.image_enc.enc_lat": "frame_encoder.lateral",
    "image_enc.image_enc.enc_cat": "frame_encoder.joined",
    "image_enc.conv_lstm.cell_list.0.conv_x": "conv_lstm.cells.0.of_input",
    "image_enc.conv_lstm.cell_list.0.conv_h": "conv_lstm.cells.0.of_hidden",
    "image_enc.conv_lstm.cell_list.1.conv_x": "conv_lstm.cells.1.of_input",
    "image_enc.conv_lstm.cell_list.1.conv_h": "conv_lstm.cells.1.of_hidden",
    "z_what_net.enc_cnn": "glimpse_encoder.0",
    "z_what_net.enc_what": "glimpse_encoder.2",
    "glimpse_dec_net.dec": "glimpse_decoder.layers",
    "glimpse_dec_net.dec_o": "glimpse_decoder.colour",
    "glimpse_dec_net.dec_alpha": "glimpse_decoder.mask",
    "propagate_cell.z_where_transit_bias_net": "propagation.move",
    "propagate_cell.z_depth_transit_net": "propagation.depth",
    "propagate_cell.z_what_from_temporal_net": "propagation.memory",
    "propagate_cell.z_what_gate_net": "propagation.gates",
    "propagate_cell.z_pres_transit": "propagation.presence",
    "propagate_cell.temporal_rnn_inp_net": "propagation.entry",
    "propagate_cell.temporal_rnn.cell": "propagation.tracker",
    "propagate_cell.attention_encoding.temporal_img_conv_net": "propagation.around.0",
    "propagate_cell.attention_encoding.temporal_img_enc_net": "propagation.around.2",
    "propagate_cell.prior_cell.prior_rnn_inp_net": "propagation.prior_entry",
    "propagate_cell.prior_cell.prior_rnn": "propagation.prior_lstm",
    "propagate_cell.prior_cell.prior_what_net": "propagation.prior_heads.what",
    "propagate_cell.prior_cell.prior_where_bias_net": "propagation.prior_heads.move",
    "propagate_cell.prior_cell.prior_depth_net": "propagation.prior_heads.depth",
    "propagate_cell.prior_cell.prior_pres_net": "propagation.prior_heads.presence",
    "proposal_rejection_cell.ProposalNet.mask_enc_net": "discovery.cover",
    "proposal_rejection_cell.ProposalNet.img_mask_cat_enc": "discovery.joined",
    "proposal_rejection_cell.ProposalNet.z_where_net": "discovery.heads.where",
    "proposal_rejection_cell.ProposalNet.z_pres_net": "discovery.heads.presence",
    "proposal_rejection_cell.ProposalNet.z_depth_net": "discovery.heads.depth",
    "bg_enc.enc": "background.encoder.0",
    "bg_enc.enc.12": "background.encoder.1",
    "bg_dec.dec": "background.decoder.0",
    "bg_dec.bg_dec.0": "background.decoder.0.24",
    "bg_dec.bg_dec.2": "background.decoder.0.26",
    "bg_dec.bg_dec.3": "background.decoder.1",
    "bg_prior_rnn": "background.prior_gru",
    "bg_prior_net": "background.prior_head",
}


def our_parameters(theirs: Official) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}
    for name in theirs:
        module = max((m for m in MODULES if name.startswith(f"{m}.")), key=len, default=None)
        if module is not None:
            ours[MODULES[module] + name.removeprefix(module)] = theirs[name]
    for i in range(2):
        peepholes = [theirs[f"image_enc.conv_lstm.cell_list.{i}.Wc{gate}"] for gate in "ifo"]
        ours[f"conv_lstm.cells.{i}.peepholes"] = torch.cat(peepholes)
    return ours


@pytest.fixture
def nothing_drawn(monkeypatch):
    """Means instead of draws, and presences without noise. The authors have no smallest standard deviation."""
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    monkeypatch.setattr(torch, "rand_like", lambda x: torch.full_like(x, 0.5))
    monkeypatch.setattr(scalor, "SMALLEST_STD", 0.0)


@pytest.mark.usefixtures("nothing_drawn")
def test_a_training_step_of_scalor():
    theirs = Official("scalor")
    clip = Clip(theirs.tensor("frames", "frames", BATCH, TIME, 3, SIDE, SIDE))
    model = SCALOR(CONFIG).double().train()
    output = theirs.run(model, our_parameters(theirs), clip, update=UPDATE)
    losses = {name: loss.mean(dim=1) for name, loss in output.losses.items()}
    loss = sum(losses.values()).mean()
    theirs.check(**losses, loss=loss)
    theirs.check(tolerance=1e-7, uncovered=output.log_masks[:, :, 0].exp())  # our masks are no smaller than 1e-8
    theirs.check_gradients(loss)


@pytest.mark.usefixtures("nothing_drawn")
@torch.no_grad()
def test_the_objects_that_scalor_carries_on():
    """Some die and free their places one frame later."""
    theirs = Official("scalor")
    model = SCALOR(CONFIG).double().train()
    model.load_state_dict(our_parameters(theirs))
    counts, state = [], model.initial_state(BATCH)
    for frame in theirs.tensor("frames", "frames", BATCH, TIME, 3, SIDE, SIDE).unbind(1):
        _, state = model.step(frame, state)
        counts.append(state.alive.sum(dim=1))
    assert torch.stack(counts, dim=1).flatten().tolist() == theirs.fixture["numbers"]["counts"]

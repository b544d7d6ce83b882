"""`make mutants`: mistakes put into the code on purpose, each of which the named tests must find.

A mutation replaces one piece of text in a copy of the source. The working tree is never changed. First all named tests
must pass on an unchanged copy; then each mutation must make at least one of its own fail.
`python -m tests.mutants 3 17` runs some of them by number.
"""

import importlib
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vonet"
SECONDS = 300
"""After which the tests of one mutation are ended, which counts as found."""


@dataclass(frozen=True)
class Mutation:
    """`old` occurs exactly once in the file, a path below src/vonet. `tests`: as pytest takes them, below tests/."""

    what: str
    file: str
    old: str
    new: str
    tests: str

    def applied(self, source: Path) -> None:
        """Change the copy of the package at `source`."""
        path = source / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise SystemExit(
                f"{self.what}: the text to replace occurs {text.count(self.old)} times in {self.file}, expected once: "
                "adapt the entry in tests/mutants.py to the code of today"
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


MODEL, BLOCKS, METRICS = "test_model.py::", "test_blocks.py::", "evaluation/test_metrics.py::"
TRACKING, LOOP, REPLAY = "evaluation/test_spmot.py::", "training/test_loop.py::", "training/test_replay.py::"
STORE, PREPARE, BAD = "data/test_store.py::", "data/test_prepare.py::", "data/test_bad_input.py::"
LIMITS = "data/test_limits.py::"
PAINTER = "variants/test_object_decoder.py::"
COLOURS = "variants/test_slot_colours.py::"

MUTATIONS = [
    # the model
    Mutation(
        "the KL divergence has the other sign",
        "blocks/gaussian.py",
        "return (0.5 * (squared - 1) + p.log_std - q.log_std).sum(-1)",
        "return -(0.5 * (squared - 1) + p.log_std - q.log_std).sum(-1)",
        BLOCKS + "test_kl_agrees_with_torch_and_is_not_negative",
    ),
    Mutation(
        "KL balancing is swapped",
        "model/sequential_vae.py",
        "return self.kappa * train_prior + (1 - self.kappa) * train_posterior",
        "return self.kappa * train_posterior + (1 - self.kappa) * train_prior",
        BLOCKS + "test_balanced_kl_has_the_value_of_the_plain_one_and_the_gradients_of_the_formula",
    ),
    Mutation(
        "masks are normalised over the rows, not over the slots",
        "model/attention.py",
        "+ estimated).log_softmax(dim=1)",
        "+ estimated).log_softmax(dim=2)",
        MODEL + "test_masks_sum_to_one",
    ),
    Mutation(
        "estimated masks are normalised over the rows",
        "model/attention.py",
        "masks + near).log_softmax(dim=1)",
        "masks + near).log_softmax(dim=2)",
        MODEL + "test_the_encoder_equals_its_plain_form",
    ),
    Mutation(
        "the place of a hidden slot jumps to the traces of its mask",
        "variants/slot_places.py",
        "places.lerp(seen, area / (area + self.half_area))",
        "seen",
        "variants/test_slot_places.py::test_places_are_middle_and_extent_and_a_hidden_slot_keeps_its_own",
    ),
    Mutation(
        "the U-Net does not see the nearness",
        "model/attention.py",
        "estimated = self.estimate(features, context, near)",
        "estimated = self.estimate(features, context)",
        "variants/test_slot_places.py::test_the_u_net_sees_the_nearness",
    ),
    Mutation(
        "the dot product is scaled by the width, not by its root",
        "model/attention.py",
        "self.scale = slot_dim**-0.5",
        "self.scale = slot_dim**-1.0",
        MODEL + "test_estimated_masks_are_the_softmax_of_products_over_the_root_of_the_width",
    ),
    Mutation(
        "features are averaged over the mask, not over the frame",
        "model/slots.py",
        "return masks / masks.shape[-1]",
        "return masks / masks.sum(-1, keepdim=True)",
        MODEL + "test_a_slot_with_half_the_frame_has_half_the_mean",
    ),
    Mutation(
        "the trajectory has no residual",
        "model/slots.py",
        "return self.norm(updated + self.mlp(updated))",
        "return self.norm(self.mlp(updated))",
        MODEL + "test_the_trajectory_is_a_gru_an_mlp_and_a_norm",
    ),
    Mutation(
        "slots are not fresh where a video begins",
        "model/vonet.py",
        "torch.where(is_first[:, None, None], fresh, state.slots)",
        "torch.where(is_first[:, None, None], state.slots, state.slots)",
        MODEL + "test_a_video_that_begins_resets_its_own_element_only",
    ),
    Mutation(
        "all videos of a batch restart when one begins",
        "model/vonet.py",
        "torch.where(is_first[:, None, None], fresh, state.slots)",
        "torch.where(is_first.any(), fresh, state.slots)",
        MODEL + "test_a_video_that_begins_resets_its_own_element_only",
    ),
    Mutation(
        "the first frame of a clip never begins a video",
        "blocks/time.py",
        "if some_video_begins:",
        "if some_video_begins and t:",
        MODEL + "test_a_fresh_state_and_a_first_frame_mean_the_same",
    ),
    Mutation(
        "the prior sees the frame that it predicts",
        "model/vonet.py",
        "slots, previous_slots=state.slots)",
        "slots, previous_slots=slots)",
        MODEL + "test_a_forecast_is_made_before_the_frame_is_seen",
    ),
    Mutation(
        "the KL divergence is the mean over the slots, not the sum",
        "model/vonet.py",
        "prior(output.previous_slots.flatten(0, 1))).sum(-1)",
        "prior(output.previous_slots.flatten(0, 1))).mean(-1)",
        MODEL + "test_kl_is_not_negative_and_is_the_sum_over_slots",
    ),
    Mutation(
        "latents are not sampled in training",
        "model/vonet.py",
        "latents = posterior.sample() if self.training else posterior.mean",
        "latents = posterior.mean",
        MODEL + "test_evaluation_is_deterministic_and_training_draws",
    ),
    Mutation(
        "position codes do not tell columns apart",
        "model/backbone.py",
        "return torch.stack([y, x, 1 - y, 1 - x], dim=-1)",
        "return torch.stack([y, y, 1 - y, 1 - y], dim=-1)",
        MODEL + "test_features_know_where_they_lie",
    ),
    Mutation(
        "the token decoder looks at later tokens",
        "blocks/autoregressive.py",
        "dropout_p=rate, is_causal=True)",
        "dropout_p=rate, is_causal=False)",
        "test_decoder.py::test_the_decoder_is_causal",
    ),
    Mutation(
        "corrected masks leave out the decoder's",
        "variants/slot_colours.py",
        "prior = (log_masks + log_alphas) / 2",
        "prior = log_masks",
        COLOURS + "test_corrected_masks_are_bayes_rule",
    ),
    Mutation(
        "brightness counts as much as chroma",
        "variants/slot_colours.py",
        "along_grey / (-2 * self.brightness**2)",
        "along_grey / (-2 * self.chroma**2)",
        COLOURS + "test_mean_colours_are_gaussians_that_are_longer_along_grey",
    ),
    Mutation(
        "the mean colour counts every pixel",
        "variants/slot_colours.py",
        "alphas = log_alphas.exp().unsqueeze(2)",
        "alphas = log_alphas.exp().unsqueeze(2) * 0 + 1",
        COLOURS + "test_mean_colours_are_gaussians_that_are_longer_along_grey",
    ),
    Mutation(
        "the mean colour of an empty slot is undefined",
        "variants/slot_colours.py",
        "keepdim=True) + NEARLY_EMPTY)",
        "keepdim=True))",
        COLOURS + "test_an_empty_slot_has_a_mean_colour",
    ),
    Mutation(
        "colours learn from the attention",
        "variants/object_decoder.py",
        "colours.detach(), frames, update)",
        "colours, frames, update)",
        PAINTER + "test_the_attention_learns_corrected_masks",
    ),
    Mutation(
        "the attention's masks learn as targets",
        "variants/object_decoder.py",
        "fixed = log_masks.detach()",
        "fixed = log_masks",
        PAINTER + "test_the_attention_learns_corrected_masks",
    ),
    Mutation(
        "the attention learns the decoder's masks, not the corrected ones",
        "variants/object_decoder.py",
        "return self.correction(log_masks, log_alphas, colours, frames)",
        "return log_alphas",
        PAINTER + "test_the_attention_learns_corrected_masks",
    ),
    Mutation(
        "the decoder learns from corrected masks",
        "model/vonet.py",
        "return output.log_masks if output.log_attention is None else output.log_attention",
        "return output.log_masks",
        PAINTER + "test_a_model_corrects_the_masks_of_its_output_and_nothing_else",
    ),
    Mutation(
        "masks are corrected in training too",
        "model/vonet.py",
        "if self.corrects_masks and not self.training:",
        "if self.corrects_masks:",
        PAINTER + "test_a_model_corrects_the_masks_of_its_output_and_nothing_else",
    ),
    Mutation(
        "a training does not wait for the one that it starts from",
        "commands/jobs.py",
        "if job.start in started and started[job.start].exception() is not None:",
        "if False:",
        "test_reproduce.py::test_a_training_waits_for_the_one_that_it_starts_from",
    ),
    Mutation(
        "the attention's gradient reaches the decoder's masks",
        "variants/object_decoder.py",
        "self._target(fixed, log_alphas.detach(), ",
        "self._target(fixed, log_alphas, ",
        PAINTER + "test_the_two_masks_teach_each_other_and_each_is_fixed_while_it_teaches",
    ),
    Mutation(
        "the spread of colours does not count shares",
        "variants/object_decoder.py",
        "return (log_alphas.exp() * apart).sum((1, 2, 3))",
        "return apart.sum((1, 2, 3))",
        PAINTER + "test_with_the_spread_of_the_colours_each_slot_answers_for_itself",
    ),
    Mutation(
        "the price of area is linear",
        "variants/object_decoder.py",
        "return torch.log1p(log_alphas.exp().mean(-1) / self.half).sum(-1)",
        "return (log_alphas.exp().mean(-1) / self.half).sum(-1)",
        PAINTER + "test_the_price_of_area_prefers_one_slot_to_two",
    ),
    Mutation(
        "a cosine goes twice as far",
        "schedule.py",
        "way = (1 - math.cos(math.pi * way)) / 2",
        "way = 1 - math.cos(math.pi * way)",
        "test_interface.py::test_schedules_may_be_curves_and_products",
    ),
    Mutation(
        "losses are summed without their weights",
        "interface/contract.py",
        "torch.stack([weights[name] * loss.mean() for name, loss in losses.items()]).sum()",
        "torch.stack([loss.mean() for name, loss in losses.items()]).sum()",
        "test_interface.py::test_total_is_the_weighted_sum_of_means",
    ),
    # metrics
    Mutation(
        "FG-ARI counts the background",
        "evaluation/metrics.py",
        "return rand_index(table.total[table.is_object])",
        "return rand_index(table.total)",
        METRICS + "test_worked_by_hand",
    ),
    Mutation(
        "ARI is not corrected for chance",
        "evaluation/metrics.py",
        "above_chance = 2 * (together * pairs - true * predicted)",
        "above_chance = 2 * together * pairs",
        METRICS + "test_worked_by_hand",
    ),
    Mutation(
        "mIoU matches the worst segments",
        "evaluation/metrics.py",
        "linear_sum_assignment(overlap, maximize=True)",
        "linear_sum_assignment(overlap, maximize=False)",
        METRICS + "test_miou_is_brute_force_over_all_assignments",
    ),
    Mutation(
        "mIoU divides by the larger number of segments",
        "evaluation/metrics.py",
        ".sum() / len(overlap))",
        ".sum() / max(overlap.shape))",
        METRICS + "test_miou_is_brute_force_over_all_assignments",
    ),
    Mutation(
        "the union counts the intersection twice",
        "evaluation/metrics.py",
        "+ counts.sum(axis=0, keepdims=True) - counts\n",
        "+ counts.sum(axis=0, keepdims=True)\n",
        METRICS + "test_miou_is_brute_force_over_all_assignments",
    ),
    Mutation(
        "mBO is averaged over predicted segments",
        "evaluation/metrics.py",
        "return float(overlap.max(axis=1).mean()) if len(overlap) else 1.0",
        "return float(overlap.max(axis=0).mean()) if len(overlap) else 1.0",
        METRICS + "test_mbo_is_an_obvious_version",
    ),
    Mutation(
        "pairs with an IoU of 0.4 match in MOTA",
        "evaluation/spmot.py",
        "MATCH_IOU = 0.5",
        "MATCH_IOU = 0.4",
        TRACKING + "test_pairs_below_an_iou_of_one_half_cannot_match",
    ),
    Mutation(
        "the background's threshold is 0.3",
        "evaluation/spmot.py",
        "BACKGROUND_IOU = 0.2",
        "BACKGROUND_IOU = 0.3",
        TRACKING + "test_the_threshold_for_background_is_above_0_2",
    ),
    Mutation(
        "MOTA ignores identity switches",
        "evaluation/spmot.py",
        "errors = self.misses + self.id_switches + self.false_positives",
        "errors = self.misses + self.false_positives",
        TRACKING + "test_swapped_ids_are_two_switches_and_no_miss",
    ),
    Mutation(
        "a switched object counts as tracked",
        "evaluation/spmot.py",
        "mostly_tracked=int((matched / frames >= MOSTLY).sum())",
        "mostly_tracked=int(((matched + switched) / frames >= MOSTLY).sum())",
        TRACKING + "test_switches_count_as_detected_but_not_as_tracked",
    ),
    Mutation(
        "the first frames are scored",
        "evaluation/spmot.py",
        "if self._frames >= FIRST_SCORED:",
        "if self._frames >= 0:",
        TRACKING + "test_the_first_two_frames_are_not_scored",
    ),
    Mutation(
        "windows continue with the slots of the window before",
        "evaluation/run.py",
        "if t and protocol.window and t % protocol.window == 0:",
        "if t and protocol.window and t < 0:",
        "evaluation/test_run.py::test_the_state_is_carried_through_the_video_and_windows_start_anew",
    ),
    Mutation(
        "long videos count more than short ones",
        "evaluation/run.py",
        "float(np.mean([np.mean(windows) for windows in by_video.values()]))",
        "float(np.mean([score for windows in by_video.values() for score in windows]))",
        "evaluation/test_run.py::test_long_videos_count_no_more_than_short_ones",
    ),
    Mutation(
        "pixels of low probability get an id",
        "interface/segmentation.py",
        "return ids if min_probability is None else torch.where(best > math.log(min_probability), ids, NULL)",
        "return ids",
        "evaluation/test_protocol.py::test_null_pixels_for_vonet_and_for_no_other",
    ),
    # training
    Mutation(
        "replayed segments start one frame late",
        "training/replay.py",
        "at = (starts[:, None] + np.arange(length)) % self.config.length",
        "at = (starts[:, None] + 1 + np.arange(length)) % self.config.length",
        REPLAY + "test_replay_is_the_plain_version",
    ),
    Mutation(
        "fresh slots go where no video begins",
        "training/replay.py",
        "torch.where(where, new, kept.to(new.device))",
        "torch.where(where, kept.to(new.device), new)",
        REPLAY + "test_replay_is_the_plain_version",
    ),
    Mutation(
        "the gradient is not clipped",
        "training/optimizer.py",
        "if config.clip is not None and norm > config.clip:",
        "if config.clip is not None and norm < 0:",
        "test_experiments.py::test_the_optimizer_clips_each_group_and_follows_its_schedule",
    ),
    Mutation(
        "the learning rate never changes",
        "training/optimizer.py",
        'group["lr"] = config.learning_rate(update)',
        'group["lr"] = config.learning_rate(0)',
        "test_experiments.py::test_the_optimizer_clips_each_group_and_follows_its_schedule",
    ),
    Mutation(
        "the parts of a batch add up",
        "training/loop.py",
        "(loss / self._accumulate).backward()",
        "loss.backward()",
        LOOP + "test_a_batch_in_parts_is_the_batch",
    ),
    Mutation(
        "a resumed training draws other random numbers",
        "training/loop.py",
        'torch.set_rng_state(parts["random"]["cpu"])',
        'torch.set_rng_state(torch.get_rng_state() if parts["random"] else None)',
        LOOP + "test_stopping_and_going_on_is_not_stopping",
    ),
    Mutation(
        "the log loses the line of the last checkpoint",
        "training/log.py",
        'if entry["update"] <= update]',
        'if entry["update"] < update]',
        LOOP + "test_the_log_drops_what_was_lost",
    ),
    # data
    Mutation(
        "crop keeps the corner, not the middle",
        "data/resize.py",
        "kept = (w - across) / 2, (h - down) / 2, (w + across) / 2, (h + down) / 2",
        "kept = 0.0, 0.0, across, down",
        PREPARE + "test_the_middle_is_kept_by_crop_and_everything_by_stretch",
    ),
    Mutation(
        "resized ids are those of the pixels' corners",
        "data/resize.py",
        "rows = np.floor(top + (np.arange(height) + 0.5) * (bottom - top) / height).astype(int)",
        "rows = np.floor(top + np.arange(height) * (bottom - top) / height).astype(int)",
        PREPARE + "test_resized_ids_are_those_of_an_obvious_version",
    ),
    Mutation(
        "stored ids are shifted by one",
        "data/store.py",
        "return np.repeat(values[runs], lengths[runs]).reshape(shape)",
        "return np.repeat(values[runs] + 1, lengths[runs]).reshape(shape)",
        STORE + "test_what_goes_in_comes_out",
    ),
    Mutation(
        "every range of a stored video begins at its first frame",
        "data/store.py",
        "offset=self._frames_at + start * frame)",
        "offset=self._frames_at)",
        STORE + "test_any_range_is_the_same_as_a_slice_and_reads_no_more",
    ),
    Mutation(
        "every piece starts to count frames anew",
        "data/prepare.py",
        "kept = slice(-begin % config.every, None, config.every)",
        "kept = slice(None, None, config.every)",
        PREPARE + "test_every_nth_frame_across_pieces",
    ),
    Mutation(
        "checksums of records are not compared",
        "data/records.py",
        'if len(found) < FOOTER or masked_crc(shard[start:stop]) != int.from_bytes(found, "little"):',
        "if len(found) < FOOTER:",
        BAD + "test_a_flipped_bit_in_a_payload_spoils_only_that_video",
    ),
    Mutation(
        "pickles may call anything",
        "data/pickles.py",
        "        if (module, name) not in KNOWN:\n",
        "        if (module, name) not in KNOWN:\n            return super().find_class(module, name)\n        if 0:\n",
        BAD + "test_malicious_pickles_are_not_run",
    ),
    Mutation(
        "an index may point outside its store",
        "data/store_index.py",
        'if file.is_absolute() or ".." in file.parts or',
        "if",
        LIMITS + "test_an_index_cannot_point_outside_its_store",
    ),
    Mutation(
        "links lead out of a store",
        "data/store_index.py",
        "return os.path.commonpath([os.path.realpath(file), self._root]) == self._root",
        "return True",
        LIMITS + "test_links_that_lead_out_of_a_store_are_problems",
    ),
    Mutation(
        "pictures have no limit",
        "data/limits.py",
        "if height * width > self.megapixels * 1e6:",
        "if height < 0:",
        LIMITS + "test_pictures_beyond_the_limit_are_refused_before_they_are_decoded",
    ),
    Mutation(
        "a gzipped array is read forwards only",
        "data/tars.py",
        "        if start < self._frame:\n            self._restart()\n",
        "",
        LIMITS + "test_a_gzipped_array_is_read_in_any_order_and_in_pieces",
    ),
    Mutation(
        "any line is an entry of the log",
        "training/log.py",
        "if _is_entry(entry) and _is_like(entry, entries):",
        "if entry is not None:",
        "training/test_damage.py::test_lines_that_are_no_entries_are_left_out",
    ),
    Mutation(
        "options are not compared with their types",
        "experiments/descriptions.py",
        "    if not fits(value, hint):\n",
        "    if not fits(value, Any):\n",
        "test_descriptions.py::test_options_of_another_type_are_refused",
    ),
    # files and signals
    Mutation(
        "a file is renamed before it is written",
        "writing.py",
        "            yield aside\n            if sync:\n                sync_to_disk(aside)\n"
        "            os.replace(aside, path)\n",
        "            aside.touch()\n            os.replace(aside, path)\n            yield path\n",
        STORE + "test_a_full_disc_is_said_and_leaves_nothing_half",
    ),
    Mutation(
        "an abandoned part is left behind",
        "writing.py",
        "sync_to_disk(path.parent)\n        finally:\n            aside.unlink(missing_ok=True)\n",
        "sync_to_disk(path.parent)\n        finally:\n            pass\n",
        STORE + "test_a_full_disc_is_said_and_leaves_nothing_half",
    ),
    Mutation(
        "a file is renamed before the disk holds it",
        "writing.py",
        "            if sync:\n                sync_to_disk(aside)\n            os.replace(aside, path)\n",
        "            os.replace(aside, path)\n",
        "test_power_loss.py::test_a_synced_file_is_the_old_or_the_new_one",
    ),
    Mutation(
        "outlines are learned from the wrong colour",
        "variants/slot_colours.py",
        "square().sum(2) / (-2 * self.sigma**2)",
        "square().sum(2) / (2 * self.sigma**2)",
        PAINTER + "test_a_pixel_of_the_outline_goes_to_the_slot_whose_colour_it_has",
    ),
    Mutation(
        "the average of the weights never moves on",
        "training/loop.py",
        "share = 1 / min(self.update, self.config.average)",
        "share = 1 / self.update",
        "training/test_loop.py::test_the_saved_weights_are_averaged_over_the_last_updates",
    ),
    Mutation(
        "a second Ctrl-C is ignored",
        "data/work.py",
        'if stop["asked"] and number == signal.SIGINT:',
        'if stop["asked"] and number < 0:',
        "data/test_work.py::test_a_second_ctrl_c_stops_at_once",
    ),
]


def main() -> None:
    chosen = [int(number) for number in sys.argv[1:]] or range(len(MUTATIONS))
    for name in ("torch", "scipy.optimize", "pytest", "jaxtyping", "beartype", "PIL.Image"):
        importlib.import_module(name)  # once for all: the tests run in forks of this process
    begun = time.monotonic()
    tests = sorted({test for number in chosen for test in MUTATIONS[number].tests.split()})
    code, said = run_tests(None, tests)
    if code != 0:
        print(said)
        raise SystemExit("Some of the named tests fail without any mutation: mend them first.")
    survived = []
    for number in chosen:
        mutation = MUTATIONS[number]
        code, said = run_tests(mutation, mutation.tests.split())
        found = code == 1
        survived += [] if found else [number]
        print(
            f"{number:2d} {'found' if found else f'SURVIVED (pytest ended with {code})'}: {mutation.what}", flush=True
        )
    minutes = (time.monotonic() - begun) / 60
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutations were found, in {minutes:.1f} minutes.")
    sys.exit(bool(survived))


def run_tests(mutation: Mutation | None, tests: list[str]) -> tuple[int, str]:
    """Pytest's exit code on a copy of the source with the mutation, and what it printed. 1: a test failed."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src" / "vonet"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if mutation is not None:
            mutation.applied(copy)
        output = Path(folder) / "output"
        child = os.fork()
        if not child:
            os._exit(_pytest(copy.parent, output, tests))
        deadline = time.monotonic() + SECONDS * (1 if mutation is not None else len(tests))
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, 9)
                os.waitpid(child, 0)
                return 1, "the tests took too long"
            time.sleep(0.05)
        return os.waitstatus_to_exitcode(ended[1]), output.read_text(errors="replace")


def _pytest(source: Path, output: Path, tests: list[str]) -> int:
    """In the child: import vonet from the copy and run the tests."""
    import pytest

    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(source))
    os.chdir(ROOT)
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-o", "addopts=", *(f"tests/{test}" for test in tests)])
    vonet = sys.modules["vonet"]
    assert Path(vonet.__file__).is_relative_to(source), "the copy was not tested"
    sys.stdout.flush()
    return int(code)


if __name__ == "__main__":
    main()

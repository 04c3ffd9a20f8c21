"""For every option of `train` and `sample`, the test that would notice the option doing nothing.

Each of these tests sets the option, and holds what the package does against something that is not the package: a formula, plain torch, a
count by hand, an enumeration. `test_noticed.py` takes each option away from the code and sees its test fail.
"""

from __future__ import annotations

_OPTIMISER, _MODEL = "options/test_optimiser_options.py", "options/test_model_options.py"

TRAIN = {
    "epochs": f"{_OPTIMISER}::test_epochs_are_passes_over_all_seeds",
    "lr": f"{_OPTIMISER}::test_lr_is_adams",
    "weight_decay": f"{_OPTIMISER}::test_weight_decay_is_adams",
    "model": f"{_MODEL}::test_model_names_the_formula",
    "layers": f"{_MODEL}::test_layers_are_counted_by_their_weights",
    "hidden": f"{_MODEL}::test_hidden_is_the_width",
    "heads": f"{_MODEL}::test_heads_attend_apart",
    "dropout": f"{_MODEL}::test_dropout_is_on_hidden_rows",
    "input_dropout": f"{_MODEL}::test_input_dropout_is_on_features",
    "batch_norm": f"{_MODEL}::test_batch_norm_is_over_the_rows_of_a_rank_and_its_statistics_are_means_over_ranks",
    "layer_norm": f"{_MODEL}::test_layer_norm_is_over_each_row",
}

SAMPLE: dict[str, str] = {}

_TRAIN_NOT_YET = """
    method seed sampler fanouts sampler_options frontier batch_size bulk_size memory_budget seeds task decoder
    exclude_targets label feature_norm feature_storage metric eval_every patience graph replication exchange
    partition form overlap feature_codec cache_bytes cache_by fetch_together gradient_codec backend threads timeout
    sampling_threads device precision device_comm checkpoint checkpoint_every resume metrics track quiet bits
    reassign_every variance_weight noise_weights links message_header message_rounding message_coding boundary_share
    vertex_cut drop_edge edge_masks view view_chunks chunking swap_every halo_rows seed_weights weight_hops
    weight_cap shrink full_graph refine client_vertices interval interval_growth average_by lost_parts
    tolerate_failures trainers listen join grace redeal_after clusters server_steps server_lr
"""
_SAMPLE_NOT_YET = """
    seed sampler fanouts sampler_options frontier batch_size bulk_size memory_budget seeds epoch minibatches
    drop_last digest graph replication exchange partition backend threads timeout
"""
NOT_YET = {"train": set(_TRAIN_NOT_YET.split()), "sample": set(_SAMPLE_NOT_YET.split())}

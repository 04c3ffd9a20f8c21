"""For every option of `train` and `sample`, the test that would notice the option doing nothing.

Each of these tests sets the option, and holds what the package does against something that is not the package: a formula, plain torch, a
count by hand, an enumeration. `test_noticed.py` takes each option away from the code and sees its test fail.
"""

from __future__ import annotations

_OPTIMISER = "options/test_optimiser_options.py"
_MODEL = "options/test_model_options.py"
_SAMPLING = "options/test_sampling_options.py"
_DATA = "options/test_data_options.py"
_EVALUATION = "options/test_evaluation_options.py"

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
    "seed": f"{_SAMPLING}::test_seed_names_the_order_and_the_draws_of_the_epoch",
    "sampler": f"{_SAMPLING}::test_sampler_full_takes_every_neighbor",
    "fanouts": f"{_SAMPLING}::test_fanouts_are_the_most_draws_of_a_row_in_each_hop",
    "sampler_options": f"{_SAMPLING}::test_sampler_options_reach_the_sampler",
    "frontier": f"{_SAMPLING}::test_frontier_new_expands_each_vertex_once",
    "batch_size": f"{_SAMPLING}::test_batch_size_is_the_seeds_of_a_minibatch",
    "bulk_size": f"{_SAMPLING}::test_bulk_size_is_the_minibatches_of_a_call",
    "memory_budget": f"{_SAMPLING}::test_memory_budget_bounds_the_bulk",
    "seeds": f"{_SAMPLING}::test_seeds_are_those_of_the_split",
    "task": f"{_DATA}::test_task_links_learns_from_edges",
    "decoder": f"{_DATA}::test_decoder_mlp_is_two_linear_layers_and_a_prelu",
    "exclude_targets": f"{_DATA}::test_exclude_targets_leaves_out_the_edges_that_are_asked_for",
    "label": f"{_DATA}::test_label_is_another_column",
    "feature_norm": f"{_DATA}::test_feature_norm_divides_each_row",
    "feature_storage": f"{_DATA}::test_feature_storage_rounds_once_and_halves_the_bytes",
    "metric": f"{_EVALUATION}::test_metric_is_scored_and_picks_the_best_weights",
    "eval_every": f"{_EVALUATION}::test_eval_every_counts_epochs_and_the_last_is_always_evaluated",
    "patience": f"{_EVALUATION}::test_patience_ends_the_run",
}

# Options whose default the package refuses beside what their test has to set, and what it says then.
REFUSED = {"task": "there is no metric 'mrr'"}

SAMPLE: dict[str, str] = {}

_TRAIN_NOT_YET = """
    method graph replication exchange partition form overlap feature_codec cache_bytes cache_by fetch_together gradient_codec
    backend threads timeout sampling_threads device precision device_comm checkpoint checkpoint_every resume metrics track quiet
    bits reassign_every variance_weight noise_weights links message_header message_rounding message_coding boundary_share
    vertex_cut drop_edge edge_masks view view_chunks chunking swap_every halo_rows seed_weights weight_hops weight_cap shrink
    full_graph refine client_vertices interval interval_growth average_by lost_parts tolerate_failures trainers listen join grace
    redeal_after clusters server_steps server_lr
"""
_SAMPLE_NOT_YET = """
    seed sampler fanouts sampler_options frontier batch_size bulk_size memory_budget seeds epoch minibatches
    drop_last digest graph replication exchange partition backend threads timeout
"""
NOT_YET = {"train": set(_TRAIN_NOT_YET.split()), "sample": set(_SAMPLE_NOT_YET.split())}

"""For every option of `train` and `sample`, the test that would notice the option doing nothing.

Each of these tests sets the option, and holds what the package does against something that is not the package: a formula, plain torch, a
count by hand, an enumeration. `test_noticed.py` takes each option away from the code and sees its test fail.
"""

from __future__ import annotations

_OPTIMISER = "options/test_optimiser_options.py"
_MODEL = "options/test_model_options.py"
_SAMPLING = "options/test_sampling_options.py"
_DATA = "options/test_data_options.py"
_RELATIONAL = "options/test_relational_options.py"
_EVALUATION = "options/test_evaluation_options.py"
_PLACEMENT = "options/test_placement_options.py"
_TRAFFIC = "options/test_traffic_options.py"
_ADAQP = "options/test_adaqp_options.py"
_FULL_GRAPH = "options/test_full_graph_options.py"
_GRAPPA = "options/test_grappa_options.py"
_AVERAGING = "options/test_averaging_options.py"
_ELASTIC = "options/test_elastic_options.py"
_STORE = "options/test_store_options.py"
_SAMPLE = "options/test_sample_command.py"
_SAMPLE_RELATIONS = "options/test_sample_relations.py"
_RUNNING = "options/test_running_options.py"
_OUTPUT = "options/test_output_options.py"
_SAMPLERS = "options/test_sampler_options.py"

TRAIN = {
    "epochs": f"{_OPTIMISER}::test_epochs_are_passes_over_all_seeds",
    "lr": f"{_OPTIMISER}::test_lr_is_adams",
    "weight_decay": f"{_OPTIMISER}::test_weight_decay_is_adams",
    "lr_schedule": f"{_OPTIMISER}::test_lr_schedule_falls_along_a_cosine",
    "warmup": f"{_OPTIMISER}::test_warmup_rises_along_a_line",
    "lr_end_factor": f"{_OPTIMISER}::test_lr_end_factor_is_the_share_at_the_end",
    "lr_step_size": f"{_OPTIMISER}::test_lr_step_size_and_lr_gamma_are_those_of_step_lr",
    "lr_gamma": f"{_OPTIMISER}::test_lr_step_size_and_lr_gamma_are_those_of_step_lr",
    "clip_norm": f"{_OPTIMISER}::test_clip_norm_is_the_largest_norm_of_a_gradient",
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
    "seed_locality": f"{_SAMPLING}::test_seed_locality_draws_each_minibatch_from_the_rows_of_its_rank",
    "drop_last": f"{_SAMPLING}::test_drop_last_leaves_out_what_is_not_full",
    "steps_per_epoch": f"{_SAMPLING}::test_steps_per_epoch_go_on_in_the_order_of_the_seeds",
    "task": f"{_DATA}::test_task_links_learns_from_edges",
    "edge_labels": f"{_DATA}::test_edge_labels_are_the_examples",
    "target": f"{_DATA}::test_target_decides_what_the_outputs_mean",
    "decoder": f"{_DATA}::test_decoder_mlp_is_two_linear_layers_and_a_prelu",
    "exclude_targets": f"{_DATA}::test_exclude_targets_leaves_out_the_edges_that_are_asked_for",
    "balance_classes": f"{_DATA}::test_balance_classes_draws_all_classes_equally_often",
    "sampling_weights": f"{_DATA}::test_sampling_weights_draws_in_proportion_to_the_numbers_of_a_file",
    "label": f"{_DATA}::test_label_is_another_column",
    "target_type": f"{_RELATIONAL}::test_target_type_is_the_type_that_is_predicted",
    "target_relation": f"{_RELATIONAL}::test_target_relation_names_the_types_of_the_ends",
    "featureless": f"{_RELATIONAL}::test_featureless_constant_learns_one_row_for_all",
    "seed_times": f"{_RELATIONAL}::test_seed_times_is_the_column_of_the_times_of_the_seeds",
    "time_by": f"{_RELATIONAL}::test_time_by_edges_lets_later_vertices_in",
    "strategy": f"{_RELATIONAL}::test_strategy_last_draws_the_newest_papers",
    "strict": f"{_RELATIONAL}::test_strict_leaves_out_papers_of_the_time_of_the_seed",
    "feature_norm": f"{_DATA}::test_feature_norm_divides_each_row",
    "feature_storage": f"{_DATA}::test_feature_storage_rounds_once_and_halves_the_bytes",
    "metric": f"{_EVALUATION}::test_metric_is_scored_and_picks_the_best_weights",
    "evaluate": f"{_EVALUATION}::test_evaluate_none_keeps_the_newest_weights_and_says_so",
    "eval_splits": f"{_EVALUATION}::test_eval_splits_are_scored_and_no_others",
    "eval_fanouts": f"{_EVALUATION}::test_eval_fanouts_are_the_most_draws_of_a_row",
    "eval_seeds": f"{_EVALUATION}::test_eval_seeds_are_the_vertices_of_a_split_to_score",
    "eval_memory": f"{_EVALUATION}::test_eval_memory_streams_what_exceeds_it",
    "eval_every": f"{_EVALUATION}::test_eval_every_counts_epochs_and_the_last_is_always_evaluated",
    "check": f"{_STORE}::test_check_none_trains_on_a_damaged_store",
    "patience": f"{_EVALUATION}::test_patience_ends_the_run",
    "graph": f"{_PLACEMENT}::test_graph_partitioned_leaves_each_rank_its_rows",
    "topology": f"{_PLACEMENT}::test_topology_is_placed_alone",
    "features": f"{_PLACEMENT}::test_features_are_placed_alone",
    "feature_replication": f"{_PLACEMENT}::test_feature_replication_gives_c_ranks_the_same_features",
    "grid_order": f"{_PLACEMENT}::test_grid_order_decides_which_neighbors_hold_the_same_rows",
    "replication": f"{_PLACEMENT}::test_replication_gives_c_ranks_the_same_rows",
    "exchange": f"{_PLACEMENT}::test_exchange_decides_what_travels_while_sampling",
    "partition": f"{_PLACEMENT}::test_partition_of_a_file_decides_who_holds_what",
    "virtual_ranks": f"{_OPTIMISER}::test_virtual_ranks_are_the_minibatches_of_a_step",
    "form": f"{_TRAFFIC}::test_form_naive_sends_the_input_too",
    "overlap": f"{_TRAFFIC}::test_overlap_computes_before_messages_have_come",
    "feature_codec": f"{_TRAFFIC}::test_feature_codec_rounds_all_rows_and_shortens_those_that_travel",
    "cache_bytes": f"{_TRAFFIC}::test_cache_bytes_keeps_rows_of_high_degree_at_hand",
    "cache_by": f"{_TRAFFIC}::test_cache_by_frequency_counts_the_first_minibatches",
    "fetch_together": f"{_TRAFFIC}::test_fetch_together_fetches_a_row_once_for_several_minibatches",
    "gradient_codec": f"{_TRAFFIC}::test_gradient_codec_rounds_what_is_added",
    "bits": f"{_ADAQP}::test_bits_of_a_number",
    "reassign_every": f"{_ADAQP}::test_reassign_every_counts_the_choices",
    "variance_weight": f"{_ADAQP}::test_variance_weight_trades_noise_for_time",
    "noise_weights": f"{_ADAQP}::test_noise_weights_square_each_use_or_their_sum",
    "links": f"{_ADAQP}::test_links_that_take_no_time_get_eight_bits",
    "message_header": f"{_ADAQP}::test_message_header_is_two_numbers_of_its_type",
    "message_rounding": f"{_ADAQP}::test_message_rounding_to_nearest_is_off_by_half_a_step",
    "message_coding": f"{_ADAQP}::test_message_coding_remembers_what_was_sent",
    "boundary_share": f"{_FULL_GRAPH}::test_boundary_share_is_the_chance_of_a_halo_row_to_travel",
    "vertex_cut": f"{_FULL_GRAPH}::test_vertex_cut_follows_the_end_of_lower_degree_or_both_ends",
    "drop_edge": f"{_FULL_GRAPH}::test_drop_edge_is_the_share_of_pairs_that_a_mask_leaves_out",
    "edge_masks": f"{_FULL_GRAPH}::test_edge_masks_are_used_in_turn",
    "refine": f"{_FULL_GRAPH}::test_refine_adds_rounds_of_the_whole_network",
    "client_vertices": f"{_FULL_GRAPH}::test_client_vertices_is_the_size_of_a_client",
    "view": f"{_GRAPPA}::test_view_is_one_chunk_or_several_with_or_without_their_halo",
    "view_chunks": f"{_GRAPPA}::test_view_chunks_is_their_number",
    "chunking": f"{_GRAPPA}::test_chunking_fresh_draws_the_chunk_of_every_vertex",
    "swap_every": f"{_GRAPPA}::test_swap_every_moves_on_to_other_chunks",
    "halo_rows": f"{_GRAPPA}::test_halo_rows_limits_the_halo_of_a_rank",
    "seed_weights": f"{_GRAPPA}::test_seed_weights_none_and_batch_are_alike_for_all_seeds_of_a_rank",
    "weight_hops": f"{_GRAPPA}::test_weight_hops_are_the_steps_of_the_walks_that_stay",
    "weight_cap": f"{_GRAPPA}::test_weight_cap_cuts_above_its_quantile",
    "shrink": f"{_GRAPPA}::test_shrink_mixes_with_uniform_weights",
    "full_graph": f"{_GRAPPA}::test_full_graph_is_one_pass_over_the_view",
    "interval": f"{_AVERAGING}::test_interval_is_the_steps_between_averages",
    "interval_growth": f"{_AVERAGING}::test_interval_growth_lengthens_each_interval",
    "average_by": f"{_AVERAGING}::test_average_by_vertices_weighs_each_trainer_by_its_part",
    "lost_parts": f"{_AVERAGING}::test_lost_parts_are_not_trained",
    "clusters": f"{_AVERAGING}::test_clusters_stay_in_one_part",
    "server_steps": f"{_AVERAGING}::test_server_steps_follow_every_average",
    "server_lr": f"{_AVERAGING}::test_server_lr_is_the_first_step_of_the_servers_adam",
    "tolerate_failures": f"{_ELASTIC}::test_a_server_that_tolerates_failures_listens_at_the_given_address",
    "listen": f"{_ELASTIC}::test_a_server_that_tolerates_failures_listens_at_the_given_address",
    "trainers": f"{_ELASTIC}::test_trainers_is_the_number_of_parts",
    "join": f"{_ELASTIC}::test_join_goes_to_the_server_at_the_address",
    "token_file": f"{_ELASTIC}::test_token_file_holds_what_trainers_prove",
    "max_update": f"{_ELASTIC}::test_max_update_bounds_the_norm_of_an_update",
    "grace": f"{_ELASTIC}::test_grace_is_what_late_trainers_are_given",
    "redivide_after": f"{_ELASTIC}::test_redivide_after_divides_a_part_without_a_trainer",
    "method": f"{_RUNNING}::test_method_full_makes_one_dense_step_an_epoch",
    "backend": f"{_RUNNING}::test_backend_draws",
    "threads": f"{_RUNNING}::test_threads_compute_and_sample",
    "sampling_threads": f"{_RUNNING}::test_sampling_threads_work_ahead_or_not_at_all",
    "allocator": f"{_RUNNING}::test_allocator_system_maps_large_arrays_anew",
    "input_layer": "training/test_input_layer.py::test_the_way_that_was_asked_for_is_taken",
    "timeout": f"{_RUNNING}::test_timeout_is_the_deadline_of_the_ranks",
    "device": f"{_RUNNING}::test_device_is_taken_or_refused",
    "device_comm": f"{_RUNNING}::test_device_comm_between_gpus_is_refused_without_one",
    "precision": f"{_RUNNING}::test_precision_bf16_rounds_products_to_eight_bits",
    "checkpoint": f"{_OUTPUT}::test_checkpoint_holds_the_newest_weights",
    "checkpoint_every": f"{_OUTPUT}::test_checkpoint_every_counts_steps",
    "resume": f"{_OUTPUT}::test_resume_goes_on_where_a_run_ended",
    "metrics": f"{_OUTPUT}::test_metrics_is_a_file_of_one_line_an_epoch",
    "track": f"{_OUTPUT}::test_track_sends_every_epoch_to_a_tracker",
    "quiet": f"{_OUTPUT}::test_quiet_prints_nothing",
}

# Options whose default the package refuses beside what their test has to set, and what it says then.
REFUSED = {
    "edge_labels": "edge_labels None: got a NoneType",
    "target_relation": "name the one of the pairs",
    "listen": "got a graph in memory and listen with port 0",
    "lost_parts": "the partition file has 60 vertices in 3 parts; use one of 60 in 2",
}

SAMPLE = {
    "seed": f"{_SAMPLE}::test_seed_and_epoch_change_order_and_draws_but_not_the_seeds",
    "sampler": f"{_SAMPLE}::test_sampler_full_draws_every_edge",
    "fanouts": f"{_SAMPLE}::test_fanouts_bound_the_draws_of_a_row",
    "sampler_options": f"{_SAMPLE}::test_options_of_the_sampler_allow_repetitions",
    "frontier": f"{_SAMPLE}::test_frontier_new_expands_each_vertex_once",
    "batch_size": f"{_SAMPLE}::test_batch_size_and_drop_last_decide_the_minibatches",
    "bulk_size": f"{_SAMPLE}::test_bulk_size_is_the_minibatches_of_a_call",
    "memory_budget": f"{_SAMPLE}::test_memory_budget_bounds_the_bulk",
    "seeds": f"{_SAMPLE}::test_seeds_are_those_of_the_split",
    "seed_locality": f"{_SAMPLE}::test_seed_locality_draws_each_minibatch_from_one_group",
    "target_type": f"{_SAMPLE_RELATIONS}::test_seeds_are_of_the_type_with_labels_unless_a_target_type_is_named",
    "seed_times": f"{_SAMPLE_RELATIONS}::test_seed_times_is_the_column_of_the_times_of_the_seeds",
    "time_by": f"{_SAMPLE_RELATIONS}::test_time_by_chooses_the_times_that_count",
    "strategy": f"{_SAMPLE_RELATIONS}::test_strategy_last_draws_the_newest_papers",
    "strict": f"{_SAMPLE_RELATIONS}::test_strict_leaves_out_papers_of_the_time_of_the_seed",
    "epoch": f"{_SAMPLE}::test_seed_and_epoch_change_order_and_draws_but_not_the_seeds",
    "minibatches": f"{_SAMPLE}::test_minibatches_counts_from_the_first",
    "drop_last": f"{_SAMPLE}::test_batch_size_and_drop_last_decide_the_minibatches",
    "steps_per_epoch": f"{_SAMPLE}::test_steps_per_epoch_counts_the_minibatches",
    "digest": f"{_SAMPLE}::test_no_digest_computes_none",
    "graph": f"{_SAMPLE}::test_graph_partitioned_leaves_each_rank_its_rows",
    "topology": f"{_SAMPLE}::test_topology_partitioned_leaves_each_rank_its_rows",
    "features": f"{_SAMPLE}::test_features_are_fetched_from_where_they_lie",
    "feature_replication": f"{_SAMPLE}::test_feature_replication_leaves_fewer_rows_to_fetch",
    "grid_order": f"{_SAMPLE}::test_grid_order_decides_which_rows_a_rank_holds",
    "replication": f"{_SAMPLE}::test_replication_gives_c_ranks_the_same_rows",
    "exchange": f"{_SAMPLE}::test_exchange_decides_what_travels",
    "partition": f"{_SAMPLE}::test_partition_of_a_file_decides_who_holds_what",
    "backend": f"{_SAMPLE}::test_backend_draws",
    "threads": f"{_SAMPLE}::test_threads_are_those_of_the_back_end",
    "timeout": f"{_SAMPLE}::test_timeout_is_the_deadline_of_the_ranks",
    "check": f"{_STORE}::test_check_none_samples_from_a_damaged_store",
}

# The flags of the commands themselves.
FLAGS = {
    "train": {
        "json_file": f"{_OUTPUT}::test_json_is_the_report_in_a_file",
        "config": f"{_OUTPUT}::test_config_is_read",
        "verbose": f"{_OUTPUT}::test_verbose_shows_every_entry",
        "log_level": f"{_OUTPUT}::test_log_level_decides_which_lines_are_printed",
        "overwrite": f"{_STORE}::test_overwrite_replaces_the_result_of_a_training",
    },
    "sample": {
        "json_file": f"{_SAMPLE}::test_json_is_the_result_in_a_file",
        "config": f"{_SAMPLE}::test_config_is_read",
        "overwrite": f"{_STORE}::test_overwrite_replaces_the_result_of_sampling",
    },
}

# What `--options` says to a sampler.
SAMPLERS = {
    "sage.replace": f"{_SAMPLERS}::test_sage_replace_repeats_neighbors",
    "sage.weighted": f"{_SAMPLING}::test_sampler_options_reach_the_sampler",
    "ladies.debias": f"{_SAMPLERS}::test_ladies_without_corrections_weighs_by_the_row",
    "ladies.renormalise": f"{_SAMPLERS}::test_ladies_without_corrections_weighs_by_the_row",
    "ladies.importance": f"{_SAMPLERS}::test_ladies_importance_squared_sum_favors_hubs",
    "fastgcn.debias": f"{_SAMPLERS}::test_fastgcn_without_corrections_weighs_by_the_row",
    "fastgcn.renormalise": f"{_SAMPLERS}::test_fastgcn_without_corrections_weighs_by_the_row",
    "labor.layer_dependent": f"{_SAMPLERS}::test_labor_layer_dependent_repeats_the_draws_of_a_row",
    "shadow.replace": f"{_SAMPLERS}::test_shadow_replace_misses_neighbors",
    "shadow.weighted": f"{_SAMPLERS}::test_shadow_weighted_visits_heavy_neighbors",
    "shadow.layers": f"{_SAMPLERS}::test_shadow_layers_are_those_of_the_model",
    "saint.walk_length": f"{_SAMPLERS}::test_saint_walk_length_is_the_steps_of_a_walk",
    "saint.coverage": f"{_SAMPLERS}::test_saint_coverage_weighs_seeds_and_edges",
}

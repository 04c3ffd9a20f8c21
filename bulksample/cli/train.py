"""`bulksample train`: train a model on one rank or, under mpirun or srun, on many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import EXIT_PEER_LOST
from .options import ExchangeOption, GraphOption, PartitionOption, ReplicationOption, bulk_size_of, fanout_list, sampler_options
from .output import JsonOption, SeedOption, emit


def train(
    directory: Annotated[Path, typer.Argument(help="A graph in the store format, with features and labels.")],
    method: Annotated[str, typer.Option(help="How ranks work together: sync averages gradients at every step.")] = "sync",
    model: Annotated[str, typer.Option(help="sage, sage-pool, gcn or gat.")] = "sage",
    layers: Annotated[int | None, typer.Option(min=1, help="As many as there are fanouts, unless given.")] = None,
    hidden: Annotated[int, typer.Option(min=2, help="Width of the hidden layers.")] = 256,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of the hidden layers (gat).")] = 4,
    fanouts: Annotated[str | None, typer.Option(help="Per hop from the seeds on; -1 takes all. 15,10,5 unless given.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Seeds of one minibatch, on one rank.")] = 1024,
    epochs: Annotated[int, typer.Option(min=0)] = 10,
    lr: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 0.003,
    weight_decay: Annotated[float, typer.Option(min=0)] = 0.0,
    dropout: Annotated[float, typer.Option(min=0, max=1, help="On hidden rows.")] = 0.5,
    input_dropout: Annotated[float, typer.Option(min=0, max=1, help="On the input; of sparse features, on the stored values.")] = 0.0,
    batch_norm: Annotated[bool, typer.Option("--batch-norm", help="After every hidden layer.")] = False,
    layer_norm: Annotated[bool, typer.Option("--layer-norm", help="After every hidden layer, over each row.")] = False,
    sampler: Annotated[str, typer.Option(help="sage, ladies, fastgcn, labor, full, shadow or saint.")] = "sage",
    options: Annotated[str | None, typer.Option(help="Options of the sampler, such as replace=true.")] = None,
    frontier: Annotated[str, typer.Option(help="all: expand every vertex again in each layer; new: only those not expanded yet.")] = "all",
    bulk_size: Annotated[str, typer.Option(help="Minibatches sampled in one call, or auto.")] = "auto",
    memory_budget: Annotated[int | None, typer.Option(min=1, help="Bytes for sampled minibatches, for --bulk-size auto.")] = None,
    backend: Annotated[str, typer.Option(help="auto, native, reference or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Per rank; a fair share of the processors unless given.")] = None,
    sampling_threads: Annotated[
        int | None, typer.Option(min=0, help="Of them, that sample ahead; 0: everything in turn. By their number unless given.")
    ] = None,
    graph: GraphOption = None,
    replication: ReplicationOption = 1,
    exchange: ExchangeOption = "owner",
    partition: PartitionOption = "block",
    form: Annotated[str, typer.Option(help="strong, or naive: full-graph methods send the constant input in every epoch.")] = "strong",
    overlap: Annotated[bool, typer.Option(help="Full-graph methods compute rows without remote neighbours while messages travel.")] = True,
    feature_storage: Annotated[str, typer.Option(help="given, fp16 or bf16: as what features are held, if replicated.")] = "given",
    feature_codec: Annotated[str, typer.Option(help="fp32, fp16, bf16, int8, int4 or int2: how features travel, if partitioned.")] = "fp32",
    cache_bytes: Annotated[int, typer.Option(min=0, help="Of every rank, for features that are often asked for, if partitioned.")] = 0,
    cache_by: Annotated[str, typer.Option(help="degree, or frequency in the first minibatches: which features are hot.")] = "degree",
    fetch_together: Annotated[int, typer.Option(min=1, help="Minibatches that fetch features at once, each row once, if partitioned.")] = 1,
    refine: Annotated[int, typer.Option(min=0, help="Rounds end to end after the last stage (retexo).")] = 0,
    client_vertices: Annotated[int, typer.Option(min=1, help="Vertices of a client, at most (retexo-federated).")] = 1,
    gradient_codec: Annotated[str, typer.Option(help="fp32, fp16 or bf16: how gradients travel.")] = "fp32",
    view: Annotated[str, typer.Option(help="strict, halo or base: what a rank sees of the graph (grappa).")] = "halo",
    view_chunks: Annotated[int, typer.Option(min=1, help="Chunks of a view, the rank's own included (grappa).")] = 2,
    chunking: Annotated[str, typer.Option(help="static: the block rows; or fresh: dealt anew for every view (grappa).")] = "static",
    swap_every: Annotated[int, typer.Option(min=0, help="Epochs on a view; 0 keeps the first (grappa).")] = 10,
    halo_rows: Annotated[int | None, typer.Option(min=1, help="At most so many rows of the halo on a rank (grappa).")] = None,
    seed_weights: Annotated[str, typer.Option(help="node, batch, none or tree: by coverage of a seed by its view (grappa).")] = "node",
    weight_hops: Annotated[int, typer.Option(min=0, help="Hops that coverage is of; all layers unless given (grappa).")] = 0,
    weight_cap: Annotated[float, typer.Option(help="Quantile at which weights of a step are cut; 1 cuts none (grappa).")] = 1.0,
    shrink: Annotated[str | None, typer.Option(help="ess, or from 0, uniform weights, to 1, weights as they are (grappa).")] = None,
    full_graph: Annotated[bool, typer.Option("--full-graph", help="A step is one pass over the whole view (grappa).")] = False,
    vertex_cut: Annotated[str, typer.Option(help="random or degree: how edges are dealt (cofree).")] = "degree",
    drop_edge: Annotated[float, typer.Option(min=0, help="The share of edges that each of the masks leaves out (cofree).")] = 0.0,
    edge_masks: Annotated[int, typer.Option(min=1, help="Masks that are drawn once and used in turn (cofree).")] = 10,
    boundary_share: Annotated[float, typer.Option(help="The probability with which a halo row travels (bns).")] = 0.1,
    bits: Annotated[str, typer.Option(help="Of messages (adaqp): 2, 4, 8, 16, 32, uniform, random or adaptive.")] = "adaptive",
    reassign_every: Annotated[int, typer.Option(min=2, help="Epochs between two assignments of widths (adaqp).")] = 20,
    variance_weight: Annotated[float, typer.Option(min=0, max=1, help="Of noise against time, in choosing widths (adaqp).")] = 0.5,
    noise_weights: Annotated[str, typer.Option(help="sum_of_squares, or squared_sum as published (adaqp).")] = "sum_of_squares",
    links: Annotated[str, typer.Option(help="even, measured, or a JSON file with theta and gamma of each pair of ranks (adaqp).")] = "even",
    message_header: Annotated[str, typer.Option(help="bf16 or fp32: the grid of a message (adaqp).")] = "bf16",
    message_rounding: Annotated[str, typer.Option(help="stochastic or nearest (adaqp).")] = "stochastic",
    message_coding: Annotated[str, typer.Option(help="plain, difference or feedback (adaqp).")] = "plain",
    interval: Annotated[str, typer.Option(help="epoch, a number of steps, or seconds such as 2s: between averages (tma).")] = "epoch",
    interval_growth: Annotated[float, typer.Option(min=1, help="Of each interval over the one before (tma, llcg).")] = 1.0,
    average_by: Annotated[str, typer.Option(help="responders, steps or vertices: weights of an average (tma).")] = "responders",
    lost_parts: Annotated[int, typer.Option(min=0, help="Parts that are dealt and that nobody trains on (tma).")] = 0,
    clusters: Annotated[int | None, typer.Option(min=1, help="Super-nodes of all parts together (super-tma).")] = None,
    server_steps: Annotated[int, typer.Option(min=0, help="On the whole graph, after every average (llcg).")] = 1,
    server_lr: Annotated[float | None, typer.Option(help="Learning rate of those; --lr unless given (llcg).")] = None,
    tolerate_failures: Annotated[bool, typer.Option("--tolerate-failures", help="Trainers may die, be late or join (tma).")] = False,
    trainers: Annotated[int, typer.Option(min=1, help="So many, beside this process, where failures are tolerated (tma).")] = 3,
    listen: Annotated[str, typer.Option(help="HOST:PORT for trainers; with port 0, trainers are started here (tma).")] = "127.0.0.1:0",
    join: Annotated[str | None, typer.Option(help="Be a trainer of the run that listens at HOST:PORT, with its options.")] = None,
    grace: Annotated[float, typer.Option(help="Seconds to wait for a late trainer (tma).")] = 5.0,
    seeds: Annotated[str | None, typer.Option(help="Train on train, val, test or all; train where there is such a mask.")] = None,
    label: Annotated[str | None, typer.Option(help="Another column of the graph as the label.")] = None,
    feature_norm: Annotated[str, typer.Option(help="none, l1 or l2: divide each row by its norm.")] = "none",
    task: Annotated[str, typer.Option(help="nodes: classify them; or links: tell edges from pairs that are none.")] = "nodes",
    decoder: Annotated[str, typer.Option(help="dot or mlp: the score of a pair (links).")] = "dot",
    metric: Annotated[
        str | None, typer.Option(help="accuracy, f1 (macro), f1_micro or rocauc; of links mrr or hits@10; decides which weights are best.")
    ] = None,
    patience: Annotated[int, typer.Option(min=0, help="Stop after so many evaluations without a better one; 0 never does.")] = 0,
    eval_every: Annotated[int, typer.Option(min=1, help="Evaluate after so many epochs, and after the last.")] = 1,
    checkpoint: Annotated[Path | None, typer.Option(help="Directory for checkpoints, written after every epoch.")] = None,
    checkpoint_every: Annotated[int, typer.Option(min=0, help="And after so many steps.")] = 0,
    resume: Annotated[str | None, typer.Option(help="auto: the newest checkpoint of --checkpoint, if any; or the path of one.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a rank waits for the others.")] = 300.0,
    metrics: Annotated[Path | None, typer.Option(help="JSON lines of every epoch; CHECKPOINT/metrics.jsonl unless given.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no table.")] = False,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Train, evaluate exactly, and report the test score at the best validation score."""
    from ..config import TrainConfig
    from ..dist.comm import world

    lines = metrics or (checkpoint / "metrics.jsonl" if checkpoint else None)
    config = TrainConfig() if join else TrainConfig.of(
        method=method, model=model, layers=layers, hidden=hidden, heads=heads, fanouts=fanout_list(fanouts) if fanouts else None,
        batch_size=batch_size, epochs=epochs, lr=lr, weight_decay=weight_decay, dropout=dropout, input_dropout=input_dropout,
        batch_norm=batch_norm, layer_norm=layer_norm, sampler=sampler, sampler_options=sampler_options(options), frontier=frontier,
        bulk_size=bulk_size_of(bulk_size), memory_budget=memory_budget, backend=backend, threads=threads, sampling_threads=sampling_threads,
        graph=graph, replication=replication, exchange=exchange, partition=partition,
        feature_storage=feature_storage, feature_codec=feature_codec, cache_bytes=cache_bytes, cache_by=cache_by,
        fetch_together=fetch_together,
        form=form, overlap=overlap, refine=refine, client_vertices=client_vertices, gradient_codec=gradient_codec,
        view=view, view_chunks=view_chunks, chunking=chunking, swap_every=swap_every, halo_rows=halo_rows, seed_weights=seed_weights,
        weight_hops=weight_hops, weight_cap=weight_cap, shrink=shrink, full_graph=full_graph,
        vertex_cut=vertex_cut, drop_edge=drop_edge, edge_masks=edge_masks, boundary_share=boundary_share,
        bits=bits, reassign_every=reassign_every, variance_weight=variance_weight, noise_weights=noise_weights, links=links,
        message_header=message_header, message_rounding=message_rounding, message_coding=message_coding,
        interval=interval, interval_growth=interval_growth, average_by=average_by, lost_parts=lost_parts, clusters=clusters,
        server_steps=server_steps, server_lr=server_lr, tolerate_failures=tolerate_failures, trainers=trainers, listen=listen, join=join,
        grace=grace, task=task, decoder=decoder,
        seeds=seeds, label=label, feature_norm=feature_norm, metric=metric, patience=patience, eval_every=eval_every,
        checkpoint=None if checkpoint is None else str(checkpoint), checkpoint_every=checkpoint_every, resume=resume, timeout=timeout,
        metrics=None if lines is None else str(lines), quiet=quiet, seed=seed,
    )  # fmt: skip
    if join:
        from ..methods.planes.joined import invited

        config = invited(join, timeout)
    from ..report.results import JsonLines, Observer, ProgressBar
    from ..train.loop import Trainer

    observers: list[Observer] = [JsonLines(config.metrics)] if config.metrics else []
    with world(config.timeout) as comm:
        trainer = Trainer(config, directory, comm, [*observers, *([] if quiet else [ProgressBar()])])
        report = trainer.run()
        if comm.rank == 0:
            emit(report, json_file, f"train {directory}", table=not quiet)
    if report["stopped"] and not report.get("ended"):
        kept = "go on with --resume auto" if config.checkpoint else "no --checkpoint was given, so nothing was kept"
        if comm.rank == 0:
            print(f"bulksample: stopped by a signal after step {report['steps']}; {kept}", file=sys.stderr)
        raise typer.Exit(EXIT_PEER_LOST)
    if report["failed_saves"]:
        raise typer.Exit(1)

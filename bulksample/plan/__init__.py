"""Predict the memory, traffic and time of a training run on every process grid, from the sizes of a graph alone.

Letters: n vertices, m edges, d = m / n; L hops of fanouts s_l, counted from the seeds; b seeds in a mini-batch, M mini-batches in an
epoch, k in a bulk of one rank; p ranks, c replication, q = p / c block rows; f features, each of w bytes in memory and v bytes in a
message; theta parameters of the model; T = ceil(M / p) steps an epoch, with `--drop-last` floor(M / p), or those of `--steps-per-epoch`;
a = 1 - 1 / q, the share of rows on another rank of the process column.

Every figure is an expectation over graphs whose edges are drawn at random, d in each row, in one direction. Skewed degrees make
mini-batches smaller: they hold 0.60 of the predicted vertices in a block model that imitates ogbn-products, and 0.14 in an R-MAT graph
of 2^20 vertices (fanouts 15,10,5). Memory and traffic are therefore overestimated. Figures of a real run (`measured`) correct them.

Sizes (`sizes`). In hop l, R_l rows draw E_l edges, and the mini-batch holds N_l vertices afterwards; N_0 = b, U = N_L, e_l = min(s_l, d):
    R_l = N_{l-1},   E_l = R_l e_l,   N_l = n - (n - b) exp(-X_l / n),
    X_l = sum over j < l of (N_j - N_{j-1}) d (1 - product over j < t <= l of (1 - e_t / d)),  N_{-1} = 0
X_l counts the distinct edges drawn up to hop l: a vertex found in hop j draws afresh in every later hop. Under the frontier
rule `new` a vertex draws once: R_l = N_{l-1} - N_{l-2} and X_l = E_1 + .. + E_l.
A layer-wise hop draws S = min(s_l, C) of the C = n (1 - exp(-x)) neighbors of its rows, x = R d / n, with probabilities that grow with
their edges. It keeps E = R d (1 - (1 - y) (1 - S / n)) edges, y = -ln(1 - S / n) / x (1 where all are drawn). FastGCN uses x = d in C
and y, and keeps a vertex only if it has an edge into the frontier.

Memory of one rank (`memory`), bytes. A rank holds r = c / p of the rows of A if the graph is partitioned, else r = 1; H is in q block rows.
    graph       8 (n r + 1) + 4 m r, and 8 m r for edge weights. With `owner`, where answers are not padded, a count of each row: n bytes
                (2 n for s > 255, 4 n for s > 32767 or all neighbors). Layer-wise samplers add 8 n r for row sums; 8 m r for squares
                (8 n where A is whole and unweighted); 8 (n + 1) + 12 m r for the column block of `owner`; 4 m r for weighted means;
                12 n for FastGCN. Where A is whole and H in q block rows: the rows of one block once more, for inference
    features    n f w / q; with `machine` n f w / g on machines of g ranks; with `host` nothing, but n f w of each machine's memory
    vectors     16 a seed, 32 with groups of seeds; 15 n for labels, masks and degrees, or partitioned 19 n r with the ids of the rows
                (and 4 n for gcn)
    model       16 theta: weights, gradients, two moments of Adam
    bulk        3 k B,  B = 8 b + 4 U + sum over l of (8 (R_l + 1) + 4 E_l), and 4 E_l more for edge weights (layer-wise); a rank holds
                two bulks, and sampling one takes up to twice its size
    buffers     twice the traffic of the largest hop of a bulk, sent and received (LADIES: and 12 k C for P); U f 4 for the features of
                this step and, where they are exchanged, U f v (1 + 2 a) for the next: in order, sent, received;
                and k U (9 + 4 a) for the requests of a bulk. A fused input layer takes R_L f 4 in place of U f 4
    activations 4 sum over l of N_{L-l} (w_{l-1} + w_l), w_l the width after layer l: float32 kept for the backward pass (within 10 %
                for sage), and 8 max over l of N_{L-l} w_l for the gradients of a layer, before and after relu and dropout
    evaluation  exact inference, at its widest layer: 4 n (r u + (w_{l-1} + u + 2 w_l) / p), rows of u = min(w_{l-1}, w_l) being sent;
                1 GiB more where several ranks gather more than that. Layer 1 counts no w_0, and sends nothing if A is whole and f <= w_1.
                Streamed within a given memory: 4 n (w_{l-1} + u + w_l) / p and a chunk, or the chunk alone (`inference_memory`)
The peak is graph + features + vectors + model + max(bulk + buffers + activations, evaluation). It fits if it is at most
(1 - reserve) of the device. The largest k is the largest that fits, at most T. The chunks of the loader (64 MiB) are in the reserve.
Arrays alone are counted. On a CPU, the gaps between arrays in kept memory (`train --allocator`) add some 20 % to the peak.

Traffic (`traffic`), bytes, each message once: expectations of the tables of `distributed.matrix.block_rows` and
`distributed.matrix.feature_exchange` for even or random block rows; METIS sends less. Per mini-batch and hop, kind topology,
V_x = n (1 - (1 - R / n)^x) the distinct rows of x mini-batches:
    owner          (q - 1) (8 + 4 / k) + a (4 R + 4 R s), or a (4 R + 4 E) where answers are not padded
    owner, LADIES  (q - 1) (12 + 4 / k + 4 R + 12 min(S + 1, C / q)), and as FastGCN: (q - 1) (12 + 4 / k + 4 S) + a (8 R + 12 E)
    rows           (1 - 1 / c) (8 + 4 d) V_k / k + a (8 + 4 d) V_kc / (k c)
    rows, LADIES   the same, and (c - 1) (12 + 4 / k + 4 R / c + 12 n (1 - exp(-x / c))) + a (8 + 12 d) V_kc / (k c)
    rows-oblivious in place of each term with V_kc: (q - 1) (4 n + 4 m or 12 m) / (p k), whole block rows
    features       a U v f, and 4 (a U + (g - 1) (k - 1) / k) of ids (kind topology), once a mini-batch; caches are not counted
    gradients      2 (p - 1) 4 (theta + 3) a step, over all ranks
    control        8 (g - 1) for each rank and lengths sent ahead among g ranks: 1 a hop and bulk with `owner`, 4 LADIES, 2 FastGCN; with
                   `rows` 1 in the process column and 2 in the row, LADIES twice as many; 1 for the ids of the features of a bulk
Between machines, control left out: topology and features times the share of a process column that another machine holds
(`distributed.matrix.grid`; none with `machine` and `host`), and (p - g) / (p - 1) of the gradients.
`traffic.published_words` computes the published cost of the 1.5D algorithm: k b d / c + c k b d / p words a process in its first hop.

Answers of s picks a row are padded if s <= 32 and s <= 2 (1 + d), else as long as rows draw (`distributed.matrix.reply_slots`).
Collectives of an epoch (`collectives`), with lengths: 3 a hop and bulk with `owner`, 8 LADIES, 4 FastGCN; with `rows` 1 for each of p / c^2
stages and 3 before them (2 with `rows-oblivious`), and 4 where c > 1, LADIES twice as many; 2 a bulk and 1 a mini-batch for features; an
all-reduce a step. What ranks tell each other once, of entries and counts of rows, is not counted.

With `--seed-locality` U, the edges, and a of each hop and of the input rows are those of mini-batches sampled from the graph (`locality`).

Time of a step (`seconds`, `moving`). Sending z bytes takes z / B. A collective among g ranks costs g - 1 messages, each of latency alpha.
The processor of a rank adds h / 2 for the collective and h' for each message; `bulksample info --network` measures both, h for an
all-to-all with its lengths, which are two collectives. Devices whose bytes the host exchanges (`--device-comm host`) add
2 z / (bytes a second of the host's bus).
    sample    sum of E / (edges a second) + topology / B + latency and host / k
    fetch     U f w / (bytes gathered a second) + a U (4 + f v) / B + latency and host; with `host` U f w / (bytes a second from the host);
              in block rows (2 + a) U f w: the rows for other ranks are gathered, those that arrive put in place, and all put in order;
              with a codec also 2 a U (4 f + v) / (bytes gathered a second), to encode and to decode; fused, R_L + E_L rows are read in
              place of U, and nothing is aggregated at the width f in `compute`
    compute   6 sum of N_{L-l} w_{l-1} w_l (twice for sage) / (operations a second) + 8 sum of E w_{l-1} / (bytes a second)
    reduce    2 (1 - 1 / p) 4 theta / B + 2 ceil(log2 p) alpha and host, by recursive halving and doubling (Thakur et al. 2005); without
              devices 2 (p - 1) alpha
    epoch     k sample + (T - k) max(sample, fetch + compute + reduce) + k (fetch + compute + reduce)
    evaluate  one evaluation, exact or sampled, divided by the epochs between two (`seconds`)
A rank samples the next bulk while it trains on this one, so training waits for the first bulk only. Overlap of communication and
computation is not counted: not every MPI library makes progress on its own. Loading is not counted either, and waiting for slower ranks
only where `--measured` has the JSON of a `train` on as many ranks: its all-reduce takes the place of the predicted one if that is shorter.

"""

from .choice import Plan, make_plan
from .request import PlanRequest

__all__ = ["Plan", "PlanRequest", "make_plan"]

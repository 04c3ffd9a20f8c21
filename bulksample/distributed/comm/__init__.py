"""Typed collectives between ranks, each with a deadline.

base               `Comm`: what each collective means and how its bytes are counted
primitives         the few operations that a transport implements, and the tally of bytes
threads            ranks as threads of one process, or a single rank alone
processes          deadlines and failure handling that all transports between processes share
mpi                transport over MPI (pairwise_alltoall: its all-to-all)
torch_distributed  transport over torch.distributed and gloo
world              `world()`: the communicator of all ranks, chosen by how the program was launched
launchers          which launcher started this process, and as which rank
watch              polling with a deadline, and a record of recent collectives
side_channel_*     short status messages between ranks, beside the collectives
sentinel           a helper process that reports how a killed or crashed rank ended
stop_signals       Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP: finish the step, or raise `Stopped`
ledger             seconds, bytes and messages by phase of a run
agree              comparison of settings and data over ranks before the first step
thread_budget      threads of a rank for sampling, gathering and computing
cuda_aware         whether the MPI library reads device memory
network_probe      latency and bandwidth between ranks, and host seconds of a collective and of a message
shared_memory      removal of shared memory that killed MPICH ranks left behind
"""

"""Typed collectives between ranks, each with a deadline.

base               `Comm`: what each collective means and how its bytes are counted
primitives         the few operations that a transport implements, and the tally of bytes
threads            ranks as threads of one process, or a single rank alone
processes          deadlines and failure handling that all transports between processes share
mpi                transport over MPI, whether its library reads device memory, and removal of shared memory that killed ranks left behind
torch_distributed  transport over torch.distributed and gloo
world              `world()`: the communicator of all ranks, chosen by how the program was launched
launchers          which launcher started this process, and as which rank
watch              polling with a deadline, and a record of recent collectives
side_channels      short status messages between ranks, beside the collectives
process_end        signals that ask a rank to stop, and a helper process that reports how a killed or crashed rank ended
ledger             seconds, bytes and messages by phase of a run
agree              comparison of settings and data over ranks before the first step
machines           the machine of each rank, and the memory and processors that its ranks share
network_probe      latency and bandwidth between ranks, and host seconds of a collective and of a message
"""

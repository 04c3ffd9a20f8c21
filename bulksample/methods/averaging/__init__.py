"""Model averaging: RandomTMA, SuperTMA, PSGD-PA and LLCG.

method.py          the hooks and the average              participant.py        the contract of a process that takes part
variants.py        the four methods                       lockstep.py           ranks of a job that average in step
divided_graph.py   the graph that is divided into parts   trainer_server.py     a server whose trainers may die, be late or join, over TCP
                                                          remote_trainer.py     a trainer of that server
                                                          trainer_registry.py   the protocol between the two
                                                          frame_server.py       turns over the connections of the server
                                                          handshake.py          the token of a run, and its proof
                                                          frames.py             messages and connections
"""

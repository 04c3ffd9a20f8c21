"""Model averaging: RandomTMA, SuperTMA, PSGD-PA and LLCG.

method.py      the hooks and the average          participant.py      the contract of a process that takes part
tma.py  psgd_pa.py  llcg.py                       lockstep.py         ranks of a job that average in step
options.py                                        trainer_server.py   a server whose trainers may die, be late or join, over TCP
part_table.py  the part of every vertex           remote_trainer.py   a trainer of that server
                                                  roster.py frames.py the protocol between the two
"""

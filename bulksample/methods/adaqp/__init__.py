"""AdaQP: full-graph training with messages of few bits.

method.py             the hooks
rounded_messages.py   rows as messages of 2, 4 and 8 bits
assignment.py         bits for all messages, every few epochs
widths.py             bits for one layer and direction: less noise against less time; the speed of links
"""

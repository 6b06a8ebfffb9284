# Runs in gdb: replays the commands of a transcript, and writes what gdb answers to another file.
#
#   TRANSCRIPT and ANSWERS are the names of the two files, in the environment.
#
# In a transcript, a line that begins with "(gdb) " is a command, and the lines behind it are its answer.
# What differs from run to run, or from compiler to compiler, is replaced.

import os
import re

import gdb


def stable(answer):
    answer = re.sub(r"^\$\d+ = ", "", answer)
    answer = re.sub(r"0x[0-9a-f]+", "ADDRESS", answer)
    answer = re.sub(r"(\.[ch]pp):\d+", r"\1:LINE", answer)
    return re.sub(r"\{lambda\(\)#\d+\}|\$_\d+|'lambda\d*'\(\)", "LAMBDA", answer)


def answer_to(command):
    try:
        return gdb.execute(command, to_string=True)
    except gdb.error as error:
        return f"error: {error}\n"


with open(os.environ["TRANSCRIPT"], encoding="utf-8") as transcript:
    lines = transcript.read().splitlines()
with open(os.environ["ANSWERS"], "w", encoding="utf-8") as answers:
    for line in lines:
        if line.startswith("(gdb) "):
            answers.write(f"{line}\n{stable(answer_to(line[6:]))}")

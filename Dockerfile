# bulksample with MPICH, for clusters. Apptainer and Singularity build from it too; docs/launch.md says how to start ranks.
# `.ci/image` tries the steps below, from COPY on, in a clean folder and environment.
FROM python:3.12-slim-bookworm

RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ make mpich libmpich-dev \
 && rm -rf /var/lib/apt/lists/*

# Where pip finds torch: https://download.pytorch.org/whl/cu128 and the like for GPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# bulksample[cuda] adds CuPy and the compiler of its kernels.
ARG EXTRAS=train,partition,plot
ENV PATH=/opt/venv/bin:$PATH LD_LIBRARY_PATH=/opt/mpi OMP_WAIT_POLICY=passive

COPY . /opt/bulksample
WORKDIR /opt/bulksample
RUN python -m venv /opt/venv
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" torch
# mpi4py looks for libmpi.so.12, which Debian calls libmpich.so.12. On a cluster, mount the folder of another library with MPICH's ABI there.
RUN mkdir /opt/mpi && ln -s "$(/sbin/ldconfig -p | sed -n 's/.*libmpich.so.12 .* => //p')" /opt/mpi/libmpi.so.12
RUN pip install --no-cache-dir --constraint constraints.txt 'mpi4py>=4.1' ".[$EXTRAS]"
RUN python .ci/try_install.py
RUN python -m bulksample data make dcsbm --vertices 2000 --degree 10 --seed 1 -o /opt/graph \
 && mpiexec -n 2 python -m bulksample train /opt/graph --epochs 1 --fanouts 5,5 --quiet

ENTRYPOINT ["bulksample"]
CMD ["info"]

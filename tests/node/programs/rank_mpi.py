"""A rank of MPI in plain Python: libmpi itself is called, and adds up one number of every rank."""

import ctypes
import socket
import sys

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name):
    """What Open MPI's header makes of MPI_COMM_WORLD and the like: the address of a variable of the library."""
    return ctypes.byref(ctypes.c_char.in_dll(mpi, name))


def call(name, *arguments):
    if code := getattr(mpi, name)(*arguments):
        sys.exit(f"{name} failed with {code}")


world = handle("ompi_mpi_comm_world")
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
call("MPI_Init", None, None)
call("MPI_Comm_rank", world, ctypes.byref(rank))
call("MPI_Comm_size", world, ctypes.byref(size))
number = ctypes.c_int(rank.value + 1)
integer, addition = handle("ompi_mpi_int"), handle("ompi_mpi_op_sum")
call("MPI_Allreduce", ctypes.byref(number), ctypes.byref(total), 1, integer, addition, world)
if total.value != size.value * (size.value + 1) // 2:
    sys.exit(f"rank {rank.value} of {size.value}: the sum is {total.value}")
sys.stdout.write(f"rank {rank.value} of {size.value} on {socket.gethostname()}: sum {total.value}\n")
sys.stdout.flush()
call("MPI_Finalize")

"""Programs that schedules rewrite."""

import allo_dse.lang

allo_dse.lang.install()

import allo
from allo.ir.types import float32, index, int32
from allo.memory import Memory

M, N, K = 6, 8, 10


def product(A: int32[M, K], B: int32[K, N]) -> int32[M, N]:
    C: int32[M, N] = 3
    for i, j, k in allo.grid(M, N, K):
        C[i, j] += A[i, k] * B[k, j]
    return C


def triangle(A: int32[N, N], B: int32[N, N]):
    for i in range(N):
        for j in range(i + 1):
            for k in range(2, 7):
                B[i, j] += A[i, k] * A[k, j]


def two_nests(A: int32[M, N]) -> int32[M, N]:
    B: int32[M, N] = 0
    C: int32[M, N] = 0
    for i, j in allo.grid(M, N, name="first"):
        B[i, j] = A[i, j] + 1
    for i, j in allo.grid(M, N, name="second"):
        C[i, j] = B[i, j] * 2
    return C


def three_steps(A: int32[4, 5]) -> int32[4, 5]:
    B: int32[4, 5] = 0
    for i, j in allo.grid(4, 5):
        B[i, j] = A[i, j] * 2
    C: int32[4, 5] = 0
    for ii, jj in allo.grid(4, 5):
        C[ii, jj] = B[ii, jj] + 1
    D: int32[4, 5] = 0
    for iii, jjj in allo.grid(4, 5):
        D[iii, jjj] = C[iii, 4 - jjj] % 3
    return D


def row_sums(A: int32[M, N], B: int32[M, N]):
    for i in range(M):
        for j in range(N):
            total: int32 = 0
            for k in range(N):
                total += A[i, k] * (j + 1)
            B[i, j] = total


def diagonal(A: int32[N, N]):
    for i, j in allo.grid(N - 1, N - 1):
        A[i + 1, j] = A[i, j + 1] + A[i + 1, j]


def stencil(A: int32[M, N], B: int32[M, N]):
    for i, j in allo.grid(M - 2, N - 2, name="B"):
        B[i + 1, j + 1] = A[i, j + 1] + A[i + 1, j] + 3 * A[i + 1, j + 1] + A[i + 1, j + 2] + A[i + 2, j + 1]


def multiply(X: int32[N, N], Y: int32[N, N], Z: int32[N, N]):
    for i, j in allo.grid(N, N, name="mm"):
        for k in allo.reduction(N):
            Z[i, j] += X[i, k] * Y[k, j]


def twice(A: int32[N, N], B: int32[N, N]) -> int32[N, N]:
    C: int32[N, N] = 0
    D: int32[N, N] = 1
    multiply(A, B, C)
    multiply(C, B, D)
    return D


def scaled(A: float32[M, N], B: float32[M, N]):
    for i, j in allo.grid(M, N):
        B[i, j] = A[i, j] * 0.5


def scaled_by_caller(A: int32[4], B: int32[4]):
    for i in range(4):
        B[i] = A[i] * factor


def build_scaled(factor: int):
    return allo.customize(scaled_by_caller).build()


def strided(A: int32[9, 11], B: int32[4, 4]):
    for y, x in allo.grid(4, 4):
        total: int32 = 0
        for r, c in allo.reduction(3, 4):
            total += A[2 * y + r, 2 * x + c]
        B[y, x] = total


def past_its_end(A: int32[4]):
    A[4] = 1


def chain(A: int32[N, N], D: int32[N, N]):
    B: int32[N, N]
    C: int32[N, N]
    for i, j in allo.grid(N, N, name="first"):
        B[i, j] = A[i, j] + 1
    for i, j in allo.grid(N, N, name="second"):
        C[i, j] = B[i, j] * 2
    for i, j in allo.grid(N, N, name="third"):
        D[i, j] = C[i, j] - 2


def fork(A: float32[N, N], B: float32[N, N], C: float32[N, N]):
    for i, j in allo.grid(N, N, name="one"):
        B[i, j] = A[i, j] * 3.0
    for i, j in allo.grid(N, N, name="other"):
        C[i, j] = A[i, j] * 5.0


def solve(A: int32[N], B: int32[N]):
    for i in range(N):
        total: int32 = 0
        for j in range(N):
            total += A[j]
        for j in range(N):
            B[j] += total + i


def gemm(A: int32[4, 4], B: int32[4, 4], C: int32[4, 4]):
    for i, j in allo.grid(4, 4, name="PE"):
        for k in range(4):
            C[i, j] += A[i, k] * B[k, j]


def with_memory(A: int32[4, 4], B: int32[4, 4], C: int32[4, 4]):
    for i, j in allo.grid(4, 4, name="PE"):
        products: int32[4]
        total: int32 = 0
        for k in range(4):
            products[k] = A[i, k] * B[k, j]
        for n in range(4):
            total += products[n]
        C[i, j] = total


def process(A_in: int32[4], B_in: int32[4], A_out: int32[4], B_out: int32[4], C: int32[2, 3], i: index, j: index):
    for k in range(4):
        a: int32 = A_in[k]
        b: int32 = B_in[k]
        C[i, j] += a * b
        A_out[k] = a
        B_out[k] = b


def systolic(A: int32[2, 4], B: int32[4, 3], C: int32[2, 3]):
    across: int32[2, 4, 4]
    down: int32[3, 3, 4]
    for k in range(4):
        for m in range(2):
            across[m, 0, k] = A[m, k]
        for n in range(3):
            down[n, 0, k] = B[k, n]
    for i, j in allo.grid(2, 3, name="PE"):
        process(across[i, j], down[j, i], across[i, j + 1], down[j, i + 1], C, i, j)
    ends: int32[2]
    for k in range(4):
        for m in range(2):
            ends[m] = across[m, 3, k]
        for n in range(3):
            ends[0] = down[n, 2, k]


def carried(A: int32[4], B: int32[4]):
    last: int32[1]
    for i in range(4):
        if i > 0:
            B[i] = last[0]
        last[0] = A[i]


def two_readers(A: int32[8], C: int32[8], D: int32[8]):
    B: int32[8]
    for i in range(8):
        B[i] = A[i] + 1
    for i in range(8):
        C[i] = B[i] * 2
    for i in range(8):
        D[i] = B[i] - 3


def backwards(A: int32[4, 4], C: int32[4, 4]):
    B: int32[4, 4]
    for i, j in allo.grid(4, 4, name="first"):
        B[i, j] = A[i, j] + 1
    for i, j in allo.grid(4, 4, name="second"):
        C[i, j] = B[j, i]


def placed(A: int32[32] @ Memory(resource="URAM")) -> int32[32]:
    B: int32[32] @ Memory(resource="BRAM", storage_type="RAM_1P")
    C: int32[32]
    for i in range(32):
        B[i] = A[i] + 1
    for i in range(32):
        C[i] = B[31 - i]
    return C

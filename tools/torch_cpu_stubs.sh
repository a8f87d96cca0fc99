#!/usr/bin/env bash
# tools/torch_cpu_stubs.sh SITE_PACKAGES: makes `import torch` of the CUDA wheel work without 2.5 GB of NVIDIA wheels.
#
# The wheel's Python module links libtorch_cuda, which names cuBLAS, cuDNN, NCCL and others. A CPU test never
# calls them, so small libraries with the right names stand in: every function in them ends the process
# with a message. libcudart and libcupti, which do get called, come from their own (small) wheels.
# Only the environment of the test oracles gets this; the program's own environment is left alone.
set -euo pipefail

site=$1
lib_dir=$site/nvidia/cu13/lib
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$lib_dir"

cat >"$work/stub.c" <<'EOF'
#include <stdio.h>
#include <stdlib.h>
void longhaul_stub(void) {
  fputs("this Python environment has torch for CPU only: a CUDA library function was called\n", stderr);
  abort();
}
EOF

# soname=pattern of the names that libtorch_* expects from it
libraries="
libcublas.so.13=^cublas[A-KM-Z]|^cublasL[^t]
libcublasLt.so.13=^cublasLt
libcudnn.so.9=^cudnn
libcusparse.so.12=^cusparse[A-KM-Z]|^cusparseL[^t]
libcusparseLt.so.0=^cusparseLt
libcusolver.so.12=^cusolver
libcufft.so.12=^cufft
libcufile.so.0=^cuFile
libcurand.so.10=^curand
libnccl.so.2=^p?nccl[A-Z]
libnvshmem_host.so.3=^nvshmem
"
nm -D --undefined-only "$site"/torch/lib/lib{torch_cuda,torch_nvshmem,torch_python,torch_cuda_linalg,c10_cuda}.so |
  awk '$1 == "U" || $1 == "w" {sub(/@.*/, "", $2); print $2}' | sort -u >"$work/undefined"
for entry in $libraries; do
  soname=${entry%%=*}
  { grep -E -- "${entry#*=}" "$work/undefined" || true; } |
    awk '{printf ".globl %s\n.type %s,@function\n%s:\n", $1, $1, $1} END {print "jmp longhaul_stub@PLT"}' |
    { echo .text; cat; echo '.section .note.GNU-stack,"",@progbits'; } >"$work/names.s"
  gcc -shared -fPIC -Wl,-soname,"$soname" -o "$work/$soname" "$work/stub.c" "$work/names.s"
  mv "$work/$soname" "$lib_dir/$soname"
done

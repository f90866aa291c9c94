#!/usr/bin/env bash
# Install the compiler of CUDA 12.9 in a manylinux_2_28 image, which is an AlmaLinux 8.
set -euo pipefail

repository=$(uname -m)
if [ "$repository" = aarch64 ]; then
    repository=sbsa
fi
dnf install -y dnf-plugins-core
dnf config-manager --add-repo \
    "https://developer.download.nvidia.com/compute/cuda/repos/rhel8/$repository/cuda-rhel8.repo"
dnf install -y cuda-nvcc-12-9 cuda-cudart-devel-12-9 cuda-cccl-12-9
/usr/local/cuda-12.9/bin/nvcc --version

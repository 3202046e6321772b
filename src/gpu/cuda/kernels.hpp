// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The kernels as bytes; embed.py writes their definitions at build time, of kernels.ptx and, by nvcc, of kernels.cu.
namespace upcie::gpu::cuda {

extern const char* const nvcc_version;        ///< empty: kernels_by_nvcc holds nothing
extern const unsigned char kernels_ptx[];     ///< text, ended by a zero
extern const unsigned char kernels_by_nvcc[]; ///< a fat binary

} // namespace upcie::gpu::cuda

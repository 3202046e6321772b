// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <upcie/gpu/cuda.hpp>

#include "probed_gpu.hpp"

namespace upcie::probes {

/// What only CUDA can be asked: kinds of memory that export or do not, the flag for a PCIe mapping, and what the
/// descriptor of an export allows. Observations alone; the verdict is ask_dmabuf_export's.
void ask_cuda_memory(Report& report, os::System& system, gpu::cuda::Cuda& cuda);

} // namespace upcie::probes

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <upcie/gpu/runtime.hpp>
#include <upcie/result.hpp>

#include "probed_gpu.hpp"

// The question of upcie_probe_dmabuf_*: does an export of a range of device memory describe that range?
namespace upcie::probes {

extern const char* const dmabuf_export_question;

/// Allocates device memory, exports ranges of it, and tells what each export describes against what was asked. The same
/// body for every flavour. Error: where not even the first allocation can be had or exported.
Result<void> ask_dmabuf_export(Report& report, gpu::Runtime& runtime, const Describe& describe);

} // namespace upcie::probes

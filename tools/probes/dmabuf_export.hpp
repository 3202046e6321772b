// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>

#include <upcie/dmabuf/scatter_list.hpp>
#include <upcie/gpu/runtime.hpp>
#include <upcie/result.hpp>

#include "report.hpp"

namespace upcie::probes {

extern const char* const dmabuf_export_question;

/// Where the bytes of an export are: an importer's answer. Empty where there is no importer; sizes are all there is to
/// see then.
using Describe = std::function<Result<dmabuf::ScatterList>(const gpu::Export&)>;

/// Allocates device memory, exports ranges of it, and tells what each export describes against what was asked. The same
/// body for every flavour. Error: where not even the first allocation can be had or exported.
Result<void> ask_dmabuf_export(Report& report, gpu::Runtime& runtime, const Describe& describe);

} // namespace upcie::probes

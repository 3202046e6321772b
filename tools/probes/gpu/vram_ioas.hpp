// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <upcie/gpu/runtime.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "../report.hpp"
#include "../requests.hpp"
#include "../session.hpp"

// The question of upcie_probe_vram_ioas_*: can GPU memory enter an IOAS?
namespace upcie::probes {

extern const char* const vram_ioas_question;

/// An IOAS of an iommufd of its own. `function` is bound and attached to it; null: there is no device, and the session
/// has none. Errors: ENOENT (no /dev/iommu), EACCES, and those of open_session().
[[nodiscard]] Result<Session> open_ioas(const Requests& requests, const pci::FunctionInfo* function);

/// Maps a GPU's dma-bufs, and what they are compared with, into the session's IOAS, and tells what the kernel says.
/// `function` is the session's device, null where there is none. Nothing is transferred.
/// Error: the GPU has no memory to ask about.
Result<void> ask_vram_ioas(Report& report, const Requests& requests, const Session& session,
                           const pci::FunctionInfo* function, gpu::Runtime& runtime);

} // namespace upcie::probes

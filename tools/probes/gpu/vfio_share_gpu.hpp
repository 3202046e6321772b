// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <upcie/os/mapping.hpp>
#include <upcie/pci/enumeration.hpp>
#include <upcie/result.hpp>

#include "../capabilities.hpp"
#include "../channel.hpp"
#include "../identity.hpp"
#include "../report.hpp"
#include "../requests.hpp"
#include "../session.hpp"
#include "probed_gpu.hpp"

// The question of upcie_probe_vfio_share_gpu_*: can a process that holds only a passed descriptor of a device reach the
// device's BAR from the GPU, and what does the GPU's runtime ask of it?
namespace upcie::probes {

extern const char* const vfio_share_gpu_question;

/// A page of a device's BAR 0, in the words of whoever opened the device.
struct DevicePage {
    std::string bdf;
    std::string cdev;
    std::uint64_t bar_offset = 0;  ///< in BAR 0
    std::uint64_t file_offset = 0; ///< of the device's descriptor, for mmap(2)
    bool nvme = false;             ///< then CAP is what stands at the BAR's beginning
};

/// A device that this process opened, and the first page of its BAR 0 that can be mapped. It is read, never written.
struct OpenedPage {
    Session session;
    DevicePage where;
    os::Mapping view;
};
/// Errors: of open_session(); of asking for the region; ENODEV where no page of it can be mapped.
[[nodiscard]] Result<OpenedPage> open_page(const Requests& requests, const pci::FunctionInfo& function);

/// One process does it all: the control of the rest. Without a device, ordinary memory alone is registered, also as
/// IOMEMORY, and the BAR is not seen. Error: the question could not be asked.
Result<void> ask_gpu_alone(Report& report, const Requests& requests, ProbedGpu& gpu, const OpenedPage* device);

/// The primary's part, and the judgement: hands `device` over and takes what the secondary saw. Error: the question
/// could not be asked.
Result<void> ask_share_gpu(Report& report, const Requests& requests, Channel& secondary, const OpenedPage& device);

/// The secondary's part. What it sees with its own GPU is in `report`, and told to the primary.
Result<void> be_share_gpu_secondary(Report& report, const Requests& requests, ProbedGpu& gpu, Channel& primary);

/// A report's head about a GPU, and the device that is asked with (null: none).
[[nodiscard]] Environment environment_with_gpu(os::System& system, const DevicePage* where, Value gpu);

// ---- which capability is asked for (vfio_share_gpu_capabilities.cpp)

/// What a secondary is, and of which GPU it spoke. Its findings are in the report.
struct SecondaryTold {
    Identity who;
    Value gpu;
};
/// Hands `device` over (null: none), and takes what the secondary saw. Errors: of the channel, EPROTO.
[[nodiscard]] Result<SecondaryTold> ask_secondary(Report& report, const Requests& requests, Channel& secondary,
                                                  const OpenedPage* device);

/// Starts one more secondary, as `appearance` (none: as whoever this process is), and answers the way to it.
using StartSecondary = std::function<Result<Channel>(const std::optional<Appearance>& appearance)>;

/// Whom to try.
struct CapabilityOptions {
    std::uint32_t uid = 65534;
    std::vector<std::string> only; ///< names of capabilities; empty: each that this process has to give
};
/// Has a fresh process of that user ask with each capability alone, one with none, one with all, and one of this user
/// itself, and tells with which of them it was let register. Without a device, registers ordinary memory as IOMEMORY.
/// Errors: EPERM (this process cannot become another user), of starting the first two processes, and theirs.
Result<void> ask_which_capability(Report& report, const Requests& requests, const OpenedPage* device,
                                  const CapabilityOptions& options, const StartSecondary& start);

} // namespace upcie::probes

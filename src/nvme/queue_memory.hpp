// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <upcie/memory/buffer.hpp>
#include <upcie/nvme/command.hpp>
#include <upcie/os/system.hpp>
#include <upcie/result.hpp>

namespace upcie::nvme {

/// The two rings of a queue pair, zeroed, each contiguous for the device and starting at a page of the controller.
struct Rings {
    memory::DmaBuffer buffer;
    Command* submission = nullptr;
    CompletionEntry* completion = nullptr;
    DmaAddress submission_address;
    DmaAddress completion_address;
};

/// Allocates rings of `entries`. Where addresses are physical and ordinary pages turn out scattered, tries hugepages
/// and then looks for contiguous runs in a larger buffer: queues are created with PC=1, which also serves CAP.CQR.
/// Errors: ENOMEM with what would help, and what DmaBuffer::allocate says.
[[nodiscard]] Result<Rings> allocate_rings(os::System& system, const std::shared_ptr<iommu::AddressSpace>& space,
                                           std::uint32_t entries, unsigned page_shift, const std::string& subject);

/// PRP list pages of all commands of a queue.
struct ListPages {
    memory::DmaBuffer buffer; ///< empty when no command needs any
    std::vector<std::uint64_t> addresses;
};

/// Errors: what DmaBuffer::allocate says; EINVAL when a page of the controller is not contiguous (a granule smaller
/// than it).
[[nodiscard]] Result<ListPages> allocate_lists(os::System& system, const std::shared_ptr<iommu::AddressSpace>& space,
                                               std::uint64_t pages, unsigned page_shift, const std::string& subject);

/// The first `bytes` of a buffer as extents.
[[nodiscard]] std::vector<iommu::Extent> leading_extents(const memory::DmaBuffer& buffer, ByteCount bytes);

} // namespace upcie::nvme

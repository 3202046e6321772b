// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <upcie/memory/buffer.hpp>

namespace upcie::memory {

struct MappedBuffer {
    iommu::DmaMapping mapping;
    bool by_file = true; ///< false: by address
};

/// Maps all of a buffer by its file, or by its address where files cannot be mapped at all. Any other failure is one.
/// Errors: those of AddressSpace::map_file and map_memory.
[[nodiscard]] Result<MappedBuffer> map_buffer(iommu::AddressSpace& space, const Buffer& buffer);

} // namespace upcie::memory

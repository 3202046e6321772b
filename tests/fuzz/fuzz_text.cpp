// SPDX-License-Identifier: BSD-3-Clause
// PCI addresses and /proc/self/smaps.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <upcie/pci/bdf.hpp>

#include "iommu/smaps.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    if (const auto bdf = upcie::pci::Bdf::parse(text)) {
        // What was read must mean the same when it is written and read again.
        const auto again = upcie::pci::Bdf::parse(bdf->to_string());
        if (!again || !(*again == *bdf)) {
            std::abort();
        }
    }
    (void)upcie::iommu::look_up_smaps(text, 0x1000, 0x1000);
    return 0;
}

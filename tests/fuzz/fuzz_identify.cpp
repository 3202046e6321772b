// SPDX-License-Identifier: BSD-3-Clause
// Identify data, as a controller whose firmware is at fault may send it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <upcie/nvme/identify.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    upcie::nvme::IdentifyData page{};
    std::memcpy(page.data(), data, std::min(size, page.size()));
    const auto controller = upcie::nvme::ControllerInfo::parse(page);
    if (controller.serial.size() > 20 || controller.model.size() > 40 || controller.firmware.size() > 8) {
        std::abort();
    }
    (void)upcie::nvme::NamespaceInfo::parse(upcie::Nsid{1}, page);
    return 0;
}

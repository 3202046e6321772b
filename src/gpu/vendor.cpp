// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/vendor.hpp"

#include <algorithm>
#include <cerrno>

#include <sys/stat.h>

namespace upcie::gpu {

PciPlace find_pci_place(os::System& system, std::string_view told) {
    PciPlace place;
    place.address = told;
    std::transform(told.begin(), told.end(), place.address.begin(), [](char letter) {
        return static_cast<char>(letter >= 'A' && letter <= 'F' ? letter - 'A' + 'a' : letter);
    });
    if (const auto bdf = pci::Bdf::parse(place.address)) {
        if (auto function = pci::find_function(system, *bdf)) {
            place.bars = std::move(function->bars);
        }
    }
    return place;
}

Result<Export> adopt_export(os::System& system, int fd, DevicePointer start) {
    Export result{os::Fd{system, fd}, ByteCount{}, ByteCount{}, start};
    struct stat status {};
    if (system.fstat(fd, &status) != 0) {
        const int code = errno;
        return fail(code, "fstat", "an exported dma-buf",
                    "The runtime answered with something that is no descriptor: try another driver.");
    }
    result.size = ByteCount{static_cast<std::uint64_t>(status.st_size)};
    return result;
}

} // namespace upcie::gpu

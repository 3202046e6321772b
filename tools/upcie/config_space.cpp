// SPDX-License-Identifier: BSD-3-Clause
#include "config_space.hpp"

#include <fcntl.h>

#include <upcie/os/fd.hpp>

namespace upcie::cli {

AcsControl read_acs_control(Context& context, const pci::Bdf& bridge) {
    AcsControl acs;
    auto file = os::open_file(context.system, (context.roots.kernel.device(bridge) + "/config").c_str(), O_RDONLY);
    if (!file) {
        acs.unreadable = true;
        return acs;
    }
    constexpr off_t first_extended = 0x100;
    constexpr std::uint32_t acs_capability = 0x000d;
    constexpr off_t acs_control_offset = 6;
    off_t offset = first_extended;
    // A chain of 4-byte headers: id 15:0, version 19:16, next 31:20. Bounded: a broken chain may loop.
    for (int hops = 0; hops < 1024 && offset >= first_extended; ++hops) {
        std::uint8_t header[4]{};
        if (context.system.pread(file->get(), header, sizeof header, offset) != sizeof header) {
            acs.unreadable = hops == 0;
            return acs;
        }
        const std::uint32_t value = header[0] | (std::uint32_t{header[1]} << 8) | (std::uint32_t{header[2]} << 16) |
                                    (std::uint32_t{header[3]} << 24);
        if (value == 0 || value == 0xffffffff) {
            return acs;
        }
        if ((value & 0xffff) == acs_capability) {
            std::uint8_t control[2]{};
            acs.present = context.system.pread(file->get(), control, sizeof control, offset + acs_control_offset) == 2;
            acs.control = static_cast<std::uint16_t>(control[0] | (control[1] << 8));
            return acs;
        }
        offset = static_cast<off_t>(value >> 20);
    }
    return acs;
}

} // namespace upcie::cli

// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/pci/config_space.hpp>

#include <bitset>
#include <cerrno>

#include <fmt/format.h>

namespace upcie::pci {

namespace {

constexpr unsigned status_register = 0x06;
constexpr std::uint32_t status_has_capabilities = 1U << 4;
constexpr unsigned first_capability_register = 0x34;
constexpr unsigned header_end = 0x40;
constexpr unsigned extended_begin = 0x100;
constexpr unsigned config_space_end = 0x1000;

tl::unexpected<Error> malformed(const Function& function, unsigned offset) {
    return fail(EPROTO, "walk capabilities", function.identity().name,
                fmt::format("The list is broken at {:#x}: the device is faulty, asleep or gone.", offset));
}

} // namespace

Result<std::vector<Capability>> capabilities(Function& function) {
    std::vector<Capability> found;
    auto status = function.read_config(status_register, 2);
    if (!status) {
        return tl::unexpected{std::move(status.error())};
    }
    // All ones is what an absent device answers: the list that it seems to have is none.
    if (*status == 0xffff) {
        return malformed(function, status_register);
    }
    if ((*status & status_has_capabilities) == 0) {
        return found;
    }
    auto next = function.read_config(first_capability_register, 1);
    std::bitset<extended_begin> visited;
    while (next) {
        const unsigned offset = *next & 0xfcU; // the low two bits are reserved
        if (offset == 0) {
            return found;
        }
        if (offset < header_end || visited[offset]) {
            return malformed(function, offset);
        }
        visited[offset] = true;
        auto head = function.read_config(offset, 2);
        if (!head) {
            return tl::unexpected{std::move(head.error())};
        }
        found.push_back({static_cast<std::uint8_t>(*head & 0xff), offset});
        next = *head >> 8;
    }
    return tl::unexpected{std::move(next.error())};
}

Result<std::vector<ExtendedCapability>> extended_capabilities(Function& function) {
    std::vector<ExtendedCapability> found;
    // Conventional PCI has 256 bytes of config space: what lies beyond reads as an error or as all ones or zeros.
    auto pcie = find_capability(function, CapabilityId::pcie);
    if (!pcie) {
        return tl::unexpected{std::move(pcie.error())};
    }
    if (!*pcie) {
        return found;
    }
    std::bitset<config_space_end> visited;
    for (unsigned offset = extended_begin; offset != 0;) {
        if (offset < extended_begin || visited[offset]) {
            return malformed(function, offset);
        }
        visited[offset] = true;
        auto head = function.read_config(offset, 4);
        if (!head && offset == extended_begin && head.error().is(EINVAL)) {
            return found; // the path shows 256 bytes only
        }
        if (!head) {
            return tl::unexpected{std::move(head.error())};
        }
        if (*head == 0 || *head == 0xffffffff) {
            // "None" is all zeros at the beginning; all ones there is a bridge that does not pass extended accesses.
            return offset == extended_begin ? Result<std::vector<ExtendedCapability>>{found}
                                            : Result<std::vector<ExtendedCapability>>{malformed(function, offset)};
        }
        found.push_back(
            {static_cast<std::uint16_t>(*head & 0xffff), static_cast<std::uint8_t>(*head >> 16 & 0xf), offset});
        offset = *head >> 20 & 0xffcU;
    }
    return found;
}

Result<std::optional<unsigned>> find_capability(Function& function, CapabilityId id) {
    auto all = capabilities(function);
    if (!all) {
        return tl::unexpected{std::move(all.error())};
    }
    for (const auto& capability : *all) {
        if (capability.id == static_cast<std::uint8_t>(id)) {
            return capability.offset;
        }
    }
    return std::nullopt;
}

Result<std::optional<MsixLayout>> msix_layout(Function& function) {
    auto offset = find_capability(function, CapabilityId::msix);
    if (!offset) {
        return tl::unexpected{std::move(offset.error())};
    }
    if (!*offset) {
        return std::nullopt;
    }
    // Message Control, Table Offset/BIR, PBA Offset/BIR (PCI Express Base 7.7.2).
    auto control = function.read_config(**offset + 2, 2);
    auto table = function.read_config(**offset + 4, 4);
    auto pending = function.read_config(**offset + 8, 4);
    for (auto* part : {&control, &table, &pending}) {
        if (!*part) {
            return tl::unexpected{std::move(part->error())};
        }
    }
    MsixLayout layout;
    layout.vectors = (*control & 0x7ffU) + 1;
    layout.table_bar = *table & 7U;
    layout.table_offset = ByteCount{*table & ~7U};
    layout.pending_bar = *pending & 7U;
    layout.pending_offset = ByteCount{*pending & ~7U};
    if (layout.table_bar > 5 || layout.pending_bar > 5) {
        return malformed(function, **offset);
    }
    return layout;
}

Result<bool> has_function_level_reset(Function& function) {
    auto pcie = find_capability(function, CapabilityId::pcie);
    if (!pcie) {
        return tl::unexpected{std::move(pcie.error())};
    }
    if (*pcie) {
        auto device_capabilities = function.read_config(**pcie + 4, 4);
        if (!device_capabilities) {
            return tl::unexpected{std::move(device_capabilities.error())};
        }
        return (*device_capabilities >> 28 & 1) != 0;
    }
    auto features = find_capability(function, CapabilityId::advanced_features);
    if (!features) {
        return tl::unexpected{std::move(features.error())};
    }
    if (!*features) {
        return false;
    }
    auto supported = function.read_config(**features + 3, 1); // AF Capabilities: bit 0 TP, bit 1 FLR
    if (!supported) {
        return tl::unexpected{std::move(supported.error())};
    }
    return (*supported & 3U) == 3U;
}

} // namespace upcie::pci

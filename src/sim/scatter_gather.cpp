// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

using nvme::SglDescriptor;
using nvme::SglKind;

constexpr nvme::Status segment_descriptor_invalid = generic(0x0d);
constexpr nvme::Status too_many_descriptors = generic(0x0e);
constexpr nvme::Status data_length_invalid = generic(0x0f);
constexpr nvme::Status descriptor_type_invalid = generic(0x11);

SglDescriptor descriptor_of(const nvme::Command& command) noexcept {
    SglDescriptor descriptor;
    std::memcpy(static_cast<void*>(&descriptor), &command.prp1, sizeof descriptor); // dwords 6 to 9
    return descriptor;
}

bool is_link(const SglDescriptor& descriptor) noexcept {
    return descriptor.kind == static_cast<std::uint8_t>(SglKind::segment) ||
           descriptor.kind == static_cast<std::uint8_t>(SglKind::last_segment);
}

} // namespace

nvme::Status Engine::read_sgl_segment(const Command& command, const SglDescriptor& link,
                                      std::vector<SglDescriptor>& descriptors) {
    if (link.length == 0 || link.length % sizeof(SglDescriptor) != 0 || (link.address & 7) != 0) {
        violate(ViolationKind::sgl_invalid,
                fmt::format("command {}: an SGL segment of {} bytes at 0x{:x} (16-byte pieces, at a multiple of 8)",
                            command.cid, link.length, link.address));
        return segment_descriptor_invalid;
    }
    constexpr std::uint32_t most = 1U << 20;
    if (link.length > most) {
        violate(ViolationKind::sgl_invalid,
                fmt::format("command {}: an SGL segment of {} bytes", command.cid, link.length));
        return segment_descriptor_invalid;
    }
    descriptors.resize(link.length / sizeof(SglDescriptor));
    const auto fault = space_->read(DmaAddress{link.address}, std::as_writable_bytes(std::span{descriptors}));
    if (fault) {
        note(*fault, "reading an SGL segment");
        return data_transfer_error;
    }
    return {};
}

// Scatter Gather Lists (Base Specification 2.0, section 4.1.2): the command holds a data block or the way to a segment;
// a segment's last descriptor may lead to the next one, and that of the last segment may not.
nvme::Status Engine::walk_sgl(const Command& command, std::uint64_t bytes, Segments& segments) {
    const std::uint64_t odd = options_.sgl == nvme::SglSupport::dwords ? 3 : 0;
    const auto invalid = [&](nvme::Status status, const SglDescriptor& descriptor, std::string_view what) {
        violate(ViolationKind::sgl_invalid,
                fmt::format("command {} (opcode 0x{:02x}), {} bytes: descriptor {{0x{:x}, {} bytes, type 0x{:02x}}} {}",
                            command.cid, command.opcode, bytes, descriptor.address, descriptor.length, descriptor.kind,
                            what));
        return status;
    };
    std::vector<SglDescriptor> descriptors{descriptor_of(command)};
    std::uint64_t left = bytes;
    constexpr std::size_t most = 1U << 17; // a chain may lead in a circle
    std::size_t seen = 0;
    bool first = true; // the command's own descriptor, which is no segment
    bool last = false;
    while (!descriptors.empty()) {
        std::vector<SglDescriptor> following;
        seen += descriptors.size();
        if (seen > most) {
            return invalid(too_many_descriptors, descriptors.front(), "comes after more than can be");
        }
        for (std::size_t i = 0; i < descriptors.size(); ++i) {
            const SglDescriptor& descriptor = descriptors[i];
            if (descriptor.reserved[0] != 0 || descriptor.reserved[1] != 0 || descriptor.reserved[2] != 0) {
                return invalid(descriptor_type_invalid, descriptor, "has reserved bytes that are not zero");
            }
            if (is_link(descriptor)) {
                if (last || i + 1 != descriptors.size()) {
                    return invalid(segment_descriptor_invalid, descriptor,
                                   last ? "is a link in the last segment" : "is a link before its segment's end");
                }
                last = descriptor.kind == static_cast<std::uint8_t>(SglKind::last_segment);
                const nvme::Status status = read_sgl_segment(command, descriptor, following);
                if (!status.ok()) {
                    return status;
                }
                break;
            }
            if (descriptor.kind != static_cast<std::uint8_t>(SglKind::data_block)) {
                return invalid(descriptor_type_invalid, descriptor, "is of a kind that is not offered");
            }
            if (((descriptor.address | descriptor.length) & odd) != 0) {
                return invalid(segment_descriptor_invalid, descriptor, "is no multiple of 4");
            }
            if (descriptor.length > left) {
                return invalid(data_length_invalid, descriptor, "goes past the end of the data");
            }
            if (descriptor.length != 0) {
                segments.push_back({descriptor.address, descriptor.length});
            }
            left -= descriptor.length;
        }
        if (following.empty() && !last && !first) {
            return invalid(segment_descriptor_invalid, descriptors.back(), "ends a segment that is not the last");
        }
        descriptors = std::move(following);
        first = false;
    }
    if (left != 0) {
        return invalid(data_length_invalid, descriptor_of(command), "and what follows do not describe all the data");
    }
    return {};
}

} // namespace upcie::sim

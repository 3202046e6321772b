// SPDX-License-Identifier: BSD-3-Clause
// What this library uses of src/kmod/dmabuf_import/dmabuf_import.h, declared anew like the kernel's own interfaces.
// tests/uapi/check_dmabuf_import.cpp compares every size, offset and number with that header.
#pragma once

#include <cstdint>

#include <linux/ioctl.h>

namespace upcie::uapi {

constexpr std::uint32_t dmabuf_import_api_version = 1;
constexpr unsigned dmabuf_import_type = 0xbc;

struct DmabufImportVersion {
    std::uint32_t api_version;
    std::uint32_t most_handles;
};
constexpr unsigned long dmabuf_import_version = _IOR(dmabuf_import_type, 0, DmabufImportVersion);

constexpr std::uint32_t dmabuf_import_pin_refused = 0;
constexpr std::uint32_t dmabuf_import_pin_pinned = 1;
constexpr std::uint32_t dmabuf_import_pin_static = 2;

constexpr std::uint32_t dmabuf_import_addressing_physical = 0;
constexpr std::uint32_t dmabuf_import_addressing_default_domain = 1;
constexpr std::uint32_t dmabuf_import_addressing_bounced = 2;

struct DmabufImport {
    std::int32_t fd;
    std::uint32_t flags;
    std::uint32_t domain;
    std::uint32_t bus;
    std::uint32_t device;
    std::uint32_t function;
    std::uint32_t handle;
    std::uint32_t pin;
    std::uint32_t peer_to_peer;
    std::uint32_t addressing;
    std::uint32_t revoked;
    std::uint32_t reserved;
    std::uint64_t size;
    std::uint64_t segment_count;
    char exporter[32]; ///< ends in a NUL
};
constexpr unsigned long dmabuf_import_import = _IOWR(dmabuf_import_type, 1, DmabufImport);

constexpr std::uint32_t dmabuf_import_kind_unknown = 0;
constexpr std::uint32_t dmabuf_import_kind_ram = 1;
constexpr std::uint32_t dmabuf_import_kind_bar = 2;

struct DmabufImportSegment {
    std::uint64_t address;
    std::uint64_t length;
    std::uint32_t kind;
    std::uint32_t reserved;
};

struct DmabufImportSegments {
    std::uint32_t handle;
    std::uint32_t flags;
    std::uint64_t first;
    std::uint64_t entries; ///< address of DmabufImportSegment[capacity]
    std::uint64_t capacity;
    std::uint64_t written;
    std::uint64_t total;
};
constexpr unsigned long dmabuf_import_segments = _IOWR(dmabuf_import_type, 2, DmabufImportSegments);

struct DmabufImportRelease {
    std::uint32_t handle;
    std::uint32_t reserved;
};
constexpr unsigned long dmabuf_import_release = _IOW(dmabuf_import_type, 3, DmabufImportRelease);

} // namespace upcie::uapi
